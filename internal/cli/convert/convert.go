// Package convert converts configurations of other programs into Autohealer's policies, and OutlierPolicies into those of Istio and Envoy
// Gateway. What a map would silently merge is an error; what can't be converted is a warning.
//
// Begin to read at Convert; sources lists what is converted, and pass is the conversion of one document.
package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// Object is a policy with the position of its source.
type Object struct {
	File    string
	Line    int
	Content map[string]any
	// Target is what the object applies to, of which its controller doesn't merge two objects of the kind; "" where only names clash.
	Target string
}

// Note is an error or a warning about a position in a file.
type Note struct {
	File string
	Line int
	// Error: the document can't be converted.
	Error   bool
	Message string
}

// Result of a conversion.
type Result struct {
	Objects []Object
	// Policies of Autohealer's, for which the rules are evaluated: the objects, or what other objects were made from.
	Policies []Object
	Notes    []Note
	// Outcomes say what each field of dependency-watchdog's configurations was converted to, and what to note about other objects.
	Outcomes []Note
}

// Failed says whether anything couldn't be converted.
func (r Result) Failed() bool {
	return slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Error })
}

// source is one kind of configuration.
type source struct {
	// kind that it becomes.
	kind string
	// keyword is in the text of every such configuration, also of one that can't be parsed.
	keyword string
	// recognizes says whether a document is one.
	recognizes func(map[string]any) bool
	// convert adds what a document becomes.
	convert func(*pass)
}

// sources that are known, those of one kind together. Another one is another entry.
var sources = []source{conditionSets, outlierDefaults, outlierProxies, probeConfigs, weederConfigs, destinationRules, trafficPolicies}

// Kinds that something can be converted to. The first is the default.
func Kinds() []string {
	var kinds []string
	for _, s := range sources {
		kinds = append(kinds, s.kind)
	}
	return slices.Compact(kinds)
}

// Convert converts every configuration in the files, bare or in the data of a ConfigMap, to a kind.
func Convert(files []manifest.File, kind string) Result {
	var r Result
	for _, f := range files {
		for _, d := range manifest.Read(f) {
			convertDocument(&r, d, kind)
		}
	}
	r.rejectDuplicates()
	// One object's fields are together, whatever the order in which they were read.
	slices.SortStableFunc(r.Outcomes, func(a, b Note) int { return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return r
}

func convertDocument(r *Result, d manifest.Document, kind string) {
	p := &pass{result: r, document: d}
	for _, problem := range d.Problems {
		p.add(Note{Line: problem.Line, Error: true, Message: problem.Message})
	}
	if len(d.Problems) > 0 {
		return
	}
	if s := recognize(d.Object, kind); s != nil {
		s.convert(p)
		return
	}
	if d.Object["apiVersion"] == "v1" && d.Object["kind"] == "ConfigMap" {
		convertConfigMap(p, kind)
		return
	}
	p.warnIgnored("", d.Object, kind)
}

// warnIgnored warns of a document that isn't for the kind, and says for which kind it is.
func (p *pass) warnIgnored(path string, object map[string]any, kind string) {
	hint := ""
	for _, s := range sources {
		if s.recognizes(object) {
			hint = "; for this one write --to " + s.kind
		}
	}
	p.warn(path, "is no configuration that can be converted to %s, and is left out%s", kind, hint)
}

func recognize(object map[string]any, kind string) *source {
	for i := range sources {
		if sources[i].kind == kind && sources[i].recognizes(object) {
			return &sources[i]
		}
	}
	return nil
}

// convertConfigMap converts the configurations in a ConfigMap's values.
func convertConfigMap(p *pass, kind string) {
	data, _ := p.document.Object["data"].(map[string]any)
	for _, key := range sortedKeys(data) {
		path := "data[" + key + "]"
		text, isText := data[key].(string)
		if !isText {
			p.fail(path, "must be a string")
			continue
		}
		for _, d := range manifest.Read(manifest.File{Name: p.document.File, Text: []byte(text)}) {
			inner := &pass{result: p.result, document: d, linesBefore: p.document.LineOf(path)}
			s := recognize(d.Object, kind)
			switch {
			case len(d.Problems) > 0 && hasKeyword(text, kind):
				inner.add(Note{Line: d.Problems[0].Line, Error: true, Message: path + ": " + d.Problems[0].Message})
			case s == nil:
				p.warnIgnored(path, d.Object, kind)
			default:
				s.convert(inner)
			}
		}
	}
	if len(data) == 0 {
		p.warn("data", "is empty, so there is nothing to convert")
	}
}

// hasKeyword says whether a text seems to be meant as a configuration for the kind.
func hasKeyword(text, kind string) bool {
	return slices.ContainsFunc(sources, func(s source) bool { return s.kind == kind && strings.Contains(text, s.keyword) })
}

// rejectDuplicates reports objects of one name, since kubectl apply would silently keep the last of them; and those for one target.
func (r *Result) rejectDuplicates() {
	first := map[string]Object{}
	reject := func(o Object, name, why string) {
		other, exists := first[name]
		if !exists {
			first[name] = o
			return
		}
		r.Notes = append(r.Notes, Note{File: o.File, Line: o.Line, Error: true, Message: fmt.Sprintf("would become %s, and so would %s:%d; %s", name, other.File, other.Line, why)})
	}
	for _, o := range r.Objects {
		metadata, _ := o.Content["metadata"].(map[string]any)
		name := fmt.Sprint(o.Content["kind"], " ", metadata["name"])
		if namespace, isNamespaced := metadata["namespace"]; isNamespaced {
			name = fmt.Sprint(o.Content["kind"], " ", namespace, "/", metadata["name"])
		}
		reject(o, name, "kubectl apply would keep only the last of them: give one another type, or convert one alone")
		for _, of := range strings.Split(o.Target, ", ") {
			if of != "" {
				reject(o, fmt.Sprint("a ", o.Content["kind"], " for ", of), "of two for one only one holds: convert them one by one, and write one of both")
			}
		}
	}
}

// pass is the conversion of one document.
type pass struct {
	result   *Result
	document manifest.Document
	// linesBefore is the number of lines before it, for one in a ConfigMap's value.
	linesBefore int
}

func (p *pass) add(n Note) {
	n.File, n.Line = p.document.File, n.Line+p.linesBefore
	p.result.Notes = append(p.result.Notes, n)
}

func (p *pass) note(isError bool, path, message string) {
	if path != "" {
		message = path + ": " + message
	}
	p.add(Note{Line: p.document.LineOf(path), Error: isError, Message: message})
}

func (p *pass) fail(path, format string, args ...any) {
	p.note(true, path, fmt.Sprintf(format, args...))
}
func (p *pass) warn(path, format string, args ...any) {
	p.note(false, path, fmt.Sprintf(format, args...))
}

// policy adds one of a kind, in a namespace or in none.
func (p *pass) policy(path, kind, name, namespace string, spec map[string]any) {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := p.object(path, Object{Content: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata, "spec": spec}})
	p.result.Policies = append(p.result.Policies, o)
}

// object adds an object of any kind.
func (p *pass) object(path string, o Object) Object {
	o.File, o.Line = p.document.File, p.document.LineOf(path)+p.linesBefore
	p.result.Objects = append(p.result.Objects, o)
	return o
}

// recordOutcome records what a field was converted to.
func (p *pass) recordOutcome(path, message string) {
	p.result.Outcomes = append(p.result.Outcomes, Note{File: p.document.File, Line: p.document.LineOf(path) + p.linesBefore, Message: message})
}
