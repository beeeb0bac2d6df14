package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/resourcestack/autohealer/internal/guard"
)

// answer is what one judge says of one object.
type answer struct {
	// invalid: the schema refuses it, for a reason that isn't compared, and no rule was asked.
	invalid bool
	reason  error
	// refused and warned have a line a rule, in the words of users' terminals but for links, times and line breaks.
	refused, warned []string
	// skipped rules could not be asked here; missing is why, of the CLI.
	skipped []string
	missing map[string]string
}

// emptied: the API server made null of a map all of whose fields an apply removed, and refuses that itself. Nobody's gate
// is asked then.
func (a *answer) emptied() bool {
	return a.reason != nil && strings.Contains(a.reason.Error(), `must be of type object: "null"`)
}

var dryRunCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// heard collects the warnings of the request that runs; there is one at a time.
type heard struct{ lines []string }

// HandleWarningHeader takes one in.
func (w *heard) HandleWarningHeader(_ int, _, text string) { w.lines = append(w.lines, text) }

var hearing heard

// admin is a client whose warnings are heard.
var admin dynamic.Interface

func newAdmin() dynamic.Interface {
	GinkgoHelper()
	config := rest.CopyConfig(h.Config)
	config.WarningHandler, config.QPS = &hearing, -1
	client, err := dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return client
}

func (s *subject) resource(namespace string) dynamic.ResourceInterface {
	resource := admin.Resource(schema.GroupVersionResource{Group: "autohealer.resourcestack.com", Version: "v1alpha1", Resource: s.plural})
	if s.namespaced {
		return resource.Namespace(namespace)
	}
	return resource
}

// one is an object to be judged; with old, it is an update of that.
type one struct {
	*subject
	object, old *unstructured.Unstructured
}

// byServer is what the API server says, with whatever gates it has now, of a creation or an update that isn't done.
func (o *one) byServer(ctx context.Context) answer {
	GinkgoHelper()
	objects := o.resource(o.object.GetNamespace())
	return answered(func() error {
		if o.old == nil {
			_, err := objects.Create(ctx, o.object, dryRunCreate)
			return err
		}
		current, err := objects.Get(ctx, o.old.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		hearing.lines = nil
		current.Object["spec"] = o.object.Object["spec"]
		current.SetAnnotations(o.object.GetAnnotations())
		_, err = objects.Update(ctx, current, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

const fieldManager = "differential"

// byApply is what it says of a server-side apply, as `kubectl apply --server-side --dry-run=server` and GitOps tools do it.
func (o *one) byApply(ctx context.Context) answer {
	GinkgoHelper()
	return answered(func() error {
		_, err := o.resource(o.object.GetNamespace()).Apply(ctx, o.object.GetName(), o.object, metav1.ApplyOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

func isInvalid(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// answered makes a request, again if the manager wrote in between, and reads the outcome.
func answered(request func() error) answer {
	GinkgoHelper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		hearing.lines = nil
		return request()
	})
	a := answer{invalid: isInvalid(err), reason: err}
	for _, line := range hearing.lines {
		if _, rules, found := strings.Cut(line, "not checked, because Autohealer hasn't read all of the cluster yet: "); found {
			a.skipped = strings.Split(rules, ", ")
		} else if !strings.HasPrefix(line, "spec") { // the schema's own, about what an update left as it was
			a.warned = append(a.warned, ruleByRule(plain(line))...)
		}
	}
	if err == nil || a.invalid {
		return a
	}
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "unexpected: %v", err)
	_, text, found := strings.Cut(err.Error(), " denied request: ") // a policy's, in one line
	if found {
		a.refused = []string{plain(text)}
		return a
	}
	_, text, found = strings.Cut(err.Error(), " denied the request: ") // the webhook's, with a line a rule
	Expect(found).To(BeTrue(), "unexpected: %v", err)
	for _, line := range strings.Split(text, "\n") {
		if ruleLine.MatchString(line) || len(a.refused) == 0 {
			a.refused = append(a.refused, line)
		} else {
			a.refused[len(a.refused)-1] += " " + line // an excerpt of an expression
		}
	}
	refused := a.refused
	a.refused = nil
	for _, line := range refused {
		a.refused = append(a.refused, ruleByRule(plain(line))...)
	}
	return a
}

// unchecked says once why several rules couldn't be evaluated.
var unchecked = regexp.MustCompile(`^not checked: (.*) \(([a-z0-9/., -]+)\)$`)

func ruleByRule(line string) (lines []string) {
	found := unchecked.FindStringSubmatch(line)
	if found == nil {
		return []string{line}
	}
	for _, rule := range strings.Split(found[2], ", ") {
		lines = append(lines, rule+": not checked: "+found[1])
	}
	return lines
}

var (
	ruleLine = regexp.MustCompile(`^([a-z0-9.-]+/[a-z0-9-]+|not checked): `)
	link     = regexp.MustCompile(` \((https://github.com/resourcestack/autohealer/blob/main/docs/reference/[a-z.]+#[a-z0-9-]+|Guardrail [a-z0-9.-]+)\)`)
	// moment is a time in a message: the judges' clocks differ by the time of a request.
	moment = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,12}(Z|[+-][0-9:]{5})`)
)

func plain(line string) string {
	return strings.Join(strings.Fields(moment.ReplaceAllString(link.ReplaceAllString(line, ""), "<time>")), " ")
}

// byEngine is what the built-in rules say in this process, with no cluster around.
func (o *one) byEngine(ctx context.Context, g *guard.Guard) answer {
	request := guard.Request{Operation: admissionv1.Create, Kind: o.object.GetKind(), Object: jsonOf(o.object)}
	if o.old != nil {
		updated := o.old.DeepCopy()
		updated.Object["spec"] = o.object.Object["spec"]
		updated.SetAnnotations(o.object.GetAnnotations())
		request = guard.Request{Operation: admissionv1.Update, Kind: o.object.GetKind(), Object: jsonOf(updated), OldObject: jsonOf(o.old)}
	}
	var a answer
	verdict := g.Review(ctx, request)
	for _, v := range verdict.Violations {
		if v.Severity == guard.Deny {
			a.refused = append(a.refused, plain(v.String()))
		} else {
			a.warned = append(a.warned, plain(v.String()))
		}
	}
	for _, s := range verdict.Skipped {
		a.skipped = append(a.skipped, s.Rule)
	}
	return a
}

func jsonOf(object *unstructured.Unstructured) []byte {
	GinkgoHelper()
	text, err := object.MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	return text
}

// plugin runs the CLI; its exit code 1 means that it found something.
func plugin(ctx context.Context, args ...string) []byte {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		Expect(ok && exit.ExitCode() == 1).To(BeTrue(), "%s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.Bytes()
}

// byCLI is what `validate` says of the objects in files, with what is stored in a folder, or in the facts if these are given.
func byCLI(ctx context.Context, all []*one, flags ...string) []answer {
	GinkgoHelper()
	dir, err := os.MkdirTemp(h.Dir, "validate")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(os.RemoveAll(dir)).To(Succeed()) }()
	stored := filepath.Join(dir, "stored")
	Expect(os.Mkdir(stored, 0o700)).To(Succeed())
	answers := make([]answer, len(all))
	for _, subject := range subjects { // a Guardrail or an exception judges what comes with it
		for _, update := range []bool{false, true} {
			var documents bytes.Buffer
			var places []int
			for i, o := range all {
				if o.subject != subject || (o.old != nil) != update {
					continue
				}
				places = append(places, i)
				documents.WriteString("---\n")
				documents.Write(encode(o.object))
				if update {
					Expect(os.WriteFile(filepath.Join(stored, o.kind+"-"+o.old.GetNamespace()+"-"+o.old.GetName()+".json"), encode(o.old), 0o600)).To(Succeed())
				}
			}
			if len(places) == 0 {
				continue
			}
			file := filepath.Join(dir, "objects.yaml")
			Expect(os.WriteFile(file, documents.Bytes(), 0o600)).To(Succeed())
			args := append([]string{"validate", "-o", "json", "-f", file}, flags...)
			if update && !slices.Contains(flags, "--facts") {
				args = append(args, "--old", stored)
			}
			for i, a := range readReports(plugin(ctx, args...), len(places)) {
				answers[places[i]] = a
			}
		}
	}
	return answers
}

func encode(object *unstructured.Unstructured) []byte {
	GinkgoHelper()
	text, err := object.MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	return text
}

func readReports(output []byte, want int) []answer {
	GinkgoHelper()
	var reports struct {
		Objects []struct {
			Allowed    bool
			Violations []struct{ Rule, Severity, Message string }
			Skipped    []struct{ Rule, Severity, Reason, Missing string }
		}
	}
	Expect(json.Unmarshal(output, &reports)).To(Succeed())
	Expect(reports.Objects).To(HaveLen(want))
	answers := make([]answer, want)
	for i, r := range reports.Objects {
		a := &answers[i]
		a.missing = map[string]string{}
		for _, v := range r.Violations {
			switch line := plain(v.Rule + ": " + v.Message); {
			case v.Rule == "manifest/duplicate-object": // many are of one name here
			case strings.HasPrefix(v.Rule, "schema/") || strings.HasPrefix(v.Rule, "manifest/"):
				a.invalid = true
			case v.Severity == "Deny":
				a.refused = append(a.refused, line)
			default:
				a.warned = append(a.warned, line)
			}
		}
		for _, s := range r.Skipped {
			switch line := plain(s.Rule + ": not checked: " + s.Reason); {
			case s.Missing != "":
				a.skipped = append(a.skipped, s.Rule)
				a.missing[s.Rule] = s.Missing
			case s.Severity == "Deny":
				a.refused = append(a.refused, line)
			default:
				a.warned = append(a.warned, line)
			}
		}
		Expect(r.Allowed).To(Equal(!a.invalid && len(a.refused) == 0), "allowed of %+v", r)
	}
	return answers
}

// only are the lines of some rules, sorted.
func only(lines []string, rule func(id string) bool) []string {
	kept := []string{}
	for _, line := range lines {
		if id, _, _ := strings.Cut(line, ": "); rule(id) {
			kept = append(kept, line)
		}
	}
	slices.Sort(kept)
	return kept
}
