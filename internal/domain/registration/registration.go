// Package registration reads HealthCheckRegistrations, and decides what their checks say of a target and what becomes of its conditions.
// It is pure: it is given the objects and the time.
//
// Begin reading at Read, which makes a Registration of a spec; Check.Result makes one check, and TargetInput.Plan decides what to write on
// a target that several registrations may select.
package registration

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Registration is a HealthCheckRegistration that is made ready.
type Registration struct {
	Name       string
	UID        types.UID
	Generation int64
	// Kind of the targets.
	Kind schema.GroupVersionKind
	// SyncPeriod is how often a target is evaluated when nothing changes. CheckTimeout bounds each check.
	SyncPeriod, CheckTimeout time.Duration
	// Kubeconfig is where the shoot's is; nil when no check looks at a shoot.
	Kubeconfig *v1alpha1.SecretKey
	Output     v1alpha1.HealthCheckOutput
	Observes   bool
	// Remove are condition types that targets are to lose.
	Remove []string
	Checks []*Check

	targetType           string
	typePath             []string
	selector, namespaces labels.Selector
	suspended            *Expression
	// expressions of it and of its checks.
	expressions []*Expression
}

// Check is one check of a Registration.
type Check struct {
	Name, ConditionType string
	// Shoot: its object is in the shoot, not in the cluster of the target.
	Shoot bool
	// Timeout is how long Progressing is trusted. OnMissing says what follows when the object doesn't exist.
	Timeout   time.Duration
	OnMissing health.OnMissing

	// Kind of its object; empty where it has none. Nodes: it looks at the shoot's nodes, and its object says how many are desired.
	Kind  schema.GroupVersionKind
	Nodes bool

	when, name, namespace *Expression
	// where chooses among what the selector selects; nil takes all.
	where    *Expression
	selector labels.Selector
	judge    func(target, object *unstructured.Unstructured, now time.Time) health.Result
	// least is how many nodes the target wants, or desired how many an object does.
	least, desired *Expression
	codes          []errorCode
	// byStatus: it judges as kstatus does. byConditions: what it says depends on conditions of what it looks at.
	byStatus, byConditions bool
	// builtin: it judges by the criteria that come for the kind.
	builtin bool
}

type errorCode struct {
	match *regexp.Regexp
	code  string
}

const (
	defaultSyncPeriod         = 30 * time.Second
	defaultCheckTimeout       = 10 * time.Second
	defaultProgressingTimeout = 5 * time.Minute
	defaultTypePath           = "spec.type"
	defaultKey                = "kubeconfig"
)

// Read makes a registration ready that is stored. The problems are those of all its parts, for people; where there is one, the registration
// is not to be used.
func Read(hcr *v1alpha1.HealthCheckRegistration) (*Registration, []string) {
	r := reader{}
	return r.registration(hcr), r.problems
}

func (r *reader) registration(hcr *v1alpha1.HealthCheckRegistration) *Registration {
	spec := &hcr.Spec
	target := &spec.Target
	kind := r.kind("target", target.APIVersion, target.Kind)
	sync := r.duration("syncPeriod", spec.SyncPeriod, defaultSyncPeriod)
	reg := &Registration{
		Name: hcr.Name, UID: hcr.UID, Generation: hcr.Generation, Kind: kind,
		SyncPeriod: sync, CheckTimeout: r.duration("checkTimeout", spec.CheckTimeout, min(defaultCheckTimeout, sync/2)),
		Output: spec.Output, Observes: spec.Mode == v1alpha1.Observe, Remove: spec.RemoveConditionTypes,
		targetType: target.Type, typePath: strings.Split(cmp.Or(target.TypePath, defaultTypePath), "."),
		selector: r.selector("target.selector", target.Selector), namespaces: r.selector("target.namespaceSelector", target.NamespaceSelector),
	}
	if s := spec.ShootKubeconfig; s != nil {
		reg.Kubeconfig = &v1alpha1.SecretKey{SecretName: s.SecretName, Key: cmp.Or(s.Key, defaultKey)}
	}
	if spec.SuspendWhen != "" {
		reg.suspended = r.compile("suspendWhen", spec.SuspendWhen, cel.BoolType, false)
	}
	for i := range spec.Checks {
		reg.Checks = append(reg.Checks, r.check(&spec.Checks[i]))
	}
	reg.expressions = r.compiled
	return reg
}

// reader gathers what can't be read, and the expressions of what can.
type reader struct {
	problems []string
	compiled []*Expression
	// texts of all expressions.
	texts []string
	// isNew says whether an expression is stored for the first time; nil when none is.
	isNew func(text string) bool
}

func (r *reader) problem(where string, err error) {
	r.problems = append(r.problems, where+": "+strings.Join(strings.Fields(err.Error()), " "))
}

func (r *reader) kind(where, apiVersion, kind string) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && !apiVersionFormat.MatchString(apiVersion) {
		err = fmt.Errorf("%.64q is no version such as v1 or apps/v1", apiVersion)
	}
	if err != nil {
		r.problem(where+".apiVersion", err)
	}
	return gv.WithKind(kind)
}

// apiVersionFormat is how a version is written: a group, if it isn't the core one, as a DNS subdomain, and the version as a DNS label that
// begins with a letter. The API machinery reads more than that, such as /v1.
var apiVersionFormat = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]*[a-z0-9])?$`)

func (r *reader) duration(where string, d v1alpha1.Duration, otherwise time.Duration) time.Duration {
	parsed, err := d.Or(otherwise)
	if err != nil {
		r.problem(where, err)
	}
	return parsed
}

func (r *reader) selector(where string, s *v1alpha1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	selector, err := s.AsSelector()
	if err != nil {
		r.problem(where, err)
		return labels.Nothing()
	}
	return selector
}

func (r *reader) compile(where, text string, result *cel.Type, object bool) *Expression {
	r.texts = append(r.texts, text)
	e, err := compile(text, result, object, r.isNew != nil && r.isNew(text))
	if err != nil {
		r.problem(where, err)
	} else {
		names := strings.Split(where, ": ")
		e.where, e.field = where, strings.TrimPrefix(names[len(names)-1], "cel.")
		r.compiled = append(r.compiled, e)
	}
	return e
}

func (r *reader) check(c *v1alpha1.HealthCheck) *Check {
	where := "check " + c.Name
	before := len(r.compiled)
	check := &Check{
		Name: c.Name, ConditionType: c.ConditionType, Shoot: c.Cluster == v1alpha1.ClusterShoot,
		Timeout:   r.duration(where+": progressingTimeout", c.ProgressingTimeout, defaultProgressingTimeout),
		OnMissing: health.OnMissing(cmp.Or(string(c.OnMissing), string(health.MissingFails))),
	}
	if c.When != "" {
		check.when = r.compile(where+": when", c.When, cel.BoolType, false)
	}
	for _, code := range c.ErrorCodes {
		match, err := regexp.Compile(code.Match)
		if err != nil {
			r.problem(where+": errorCodes", err)
		}
		check.codes = append(check.codes, errorCode{match, code.Code})
	}
	r.object(where, check, c.Object)
	r.evaluator(where, check, &c.Evaluate)
	for _, e := range r.compiled[before:] {
		if check.InSeed() {
			e.object = check.Kind
		}
		check.byConditions = check.byConditions || e.field != "message" && e.mayRead(varObject, "status", "conditions")
	}
	return check
}

func (r *reader) object(where string, check *Check, o *v1alpha1.HealthCheckObject) {
	if o == nil {
		return
	}
	check.Kind = r.kind(where+": object", o.APIVersion, o.Kind)
	if o.Name != "" {
		check.name = r.compile(where+": object.name", o.Name, cel.StringType, false)
	}
	if o.Selector != nil {
		check.selector = r.selector(where+": object.selector", o.Selector)
	}
	if o.Where != "" {
		check.where = r.compile(where+": object.where", o.Where, cel.BoolType, true)
	}
	if o.Namespace != "" {
		check.namespace = r.compile(where+": object.namespace", o.Namespace, cel.StringType, false)
	}
}

func (r *reader) evaluator(where string, check *Check, e *v1alpha1.HealthCheckEvaluator) {
	switch {
	case e.Builtin != nil:
		if !health.HasBuiltin(check.Kind.GroupKind()) {
			r.problem(where, fmt.Errorf("there is no built-in check for %s; write status or cel", check.Kind.GroupKind()))
		}
		check.builtin, check.byConditions = true, true
		check.judge = func(_, object *unstructured.Unstructured, now time.Time) health.Result {
			return health.Builtin(object, check.Timeout, now)
		}
	case e.Status != nil:
		check.byStatus, check.byConditions = true, true
		check.judge = func(_, object *unstructured.Unstructured, _ time.Time) health.Result {
			return health.ByStatus(object, check.Timeout)
		}
	case e.Nodes != nil:
		r.nodes(where, check, e.Nodes)
	case e.CEL != nil:
		check.judge = r.celCheck(where, check, e.CEL)
	}
}

// Terms are what a registration says by itself, whatever the cluster is like.
type Terms struct {
	// Problems are what can't be read, or can't be meant: where, and why, up to sample.Size.
	Problems []string
}

// TermsOf reads the terms of a registration that is stored; or one that is requested, in place of an old one, nil when there is none. More is
// asked of the expressions of a requested one that the old one doesn't have.
func TermsOf(hcr, old *v1alpha1.HealthCheckRegistration, requested bool) Terms {
	stored, r := reader{}, reader{}
	if requested {
		if old != nil {
			stored.registration(old)
		}
		r.isNew = func(text string) bool { return !slices.Contains(stored.texts, text) }
	}
	r.registration(hcr)
	return Terms{Problems: r.problems[:min(len(r.problems), sample.Size)]}
}
