package cli

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// element is what the JUnit schema of Jenkins' xUnit plugin (junit-10.xsd), by which most readers go, says of an element:
// its attributes, true for those that must be there, and the elements that it may have, in this order.
type element struct {
	attributes map[string]bool
	children   []string
	// text: it may have text.
	text bool
}

var junitSchema = map[string]element{
	"": {children: []string{"testsuites"}},
	"testsuites": {
		attributes: map[string]bool{"name": false, "time": false, "tests": false, "failures": false, "disabled": false, "errors": false},
		children:   []string{"testsuite"},
	},
	"testsuite": {
		attributes: map[string]bool{
			"name": true, "tests": true, "failures": false, "errors": false, "group": false, "time": false, "disabled": false, "skipped": false,
			"timestamp": false, "hostname": false, "id": false, "package": false, "file": false, "log": false, "url": false, "version": false,
		},
		children: []string{"properties", "testcase", "system-out", "system-err"},
	},
	"testcase": {
		attributes: map[string]bool{"name": true, "classname": true, "assertions": false, "time": false, "status": false, "class": false, "file": false, "line": false, "group": false, "url": false},
		children:   []string{"skipped", "error", "failure", "properties", "system-out", "system-err"},
	},
	"failure":    {attributes: map[string]bool{"message": false, "type": false}, text: true},
	"system-out": {text: true},
}

var junitNumbers = map[string]*regexp.Regexp{
	"tests": regexp.MustCompile(`^\d+$`), "failures": regexp.MustCompile(`^\d+$`), "errors": regexp.MustCompile(`^\d+$`), "time": regexp.MustCompile(`^\d+(\.\d+)?$`),
}

// count of an element's test cases and failures.
type count struct{ tests, failures int }

// checkJUnit reads a document as a reader that knows the schema does: well-formed XML of known elements at their places and in
// their order, with known attributes, those that must be there, numbers where numbers belong, and counts that are right.
func checkJUnit(text string) error {
	decoder := xml.NewDecoder(strings.NewReader(text))
	if _, err := checkElement(decoder, "", nil); err != nil {
		return fmt.Errorf("at byte %d: %w", decoder.InputOffset(), err)
	}
	return nil
}

// checkElement reads up to the end of an element.
func checkElement(decoder *xml.Decoder, name string, attributes []xml.Attr) (of count, err error) {
	schema := junitSchema[name]
	said, err := checkAttributes(name, attributes)
	if err != nil {
		return of, err
	}
	last := 0
	for {
		token, err := decoder.Token()
		if name == "" && errors.Is(err, io.EOF) {
			return of, nil
		}
		if err != nil {
			return of, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			place := slices.Index(schema.children, t.Name.Local)
			if place < last || t.Name.Space != "" {
				return of, fmt.Errorf("%q in %q, or in this place", t.Name.Local, name)
			}
			last = place
			inner, err := checkElement(decoder, t.Name.Local, t.Attr)
			if err != nil {
				return of, err
			}
			of.tests, of.failures = of.tests+inner.tests, of.failures+inner.failures
		case xml.CharData:
			if !schema.text && strings.TrimSpace(string(t)) != "" {
				return of, fmt.Errorf("text in %q: %q", name, t)
			}
		case xml.EndElement:
			return counted(name, of, said)
		}
	}
}

func checkAttributes(name string, attributes []xml.Attr) (map[string]string, error) {
	said, known := map[string]string{}, junitSchema[name].attributes
	for _, a := range attributes {
		_, allowed := known[a.Name.Local]
		if _, twice := said[a.Name.Local]; !allowed || twice || a.Name.Space != "" {
			return nil, fmt.Errorf("attribute %q of %q is unknown or there twice", a.Name.Local, name)
		}
		if number := junitNumbers[a.Name.Local]; number != nil && !number.MatchString(a.Value) {
			return nil, fmt.Errorf("attribute %q of %q is no number: %q", a.Name.Local, name, a.Value)
		}
		said[a.Name.Local] = a.Value
	}
	for _, attribute := range slices.Sorted(maps.Keys(known)) {
		if known[attribute] && said[attribute] == "" {
			return nil, fmt.Errorf("%q lacks %q", name, attribute)
		}
	}
	return said, nil
}

// counted adds the element itself to what it has, and compares that with what it says.
func counted(name string, of count, said map[string]string) (count, error) {
	switch name {
	case "testcase":
		of.tests++
	case "failure":
		of.failures++
	case "testsuite", "testsuites":
		if said["tests"] != strconv.Itoa(of.tests) || cmp.Or(said["failures"], "0") != strconv.Itoa(of.failures) {
			return of, fmt.Errorf("%q says %s tests and %s failures, and has %d and %d", name, said["tests"], said["failures"], of.tests, of.failures)
		}
	}
	return of, nil
}

func TestJUnitHoldsItsSchema(t *testing.T) {
	t.Chdir("testdata")
	for _, args := range []string{
		"-f manifests/good.yaml", "-f manifests/bad.yaml", "-f manifests/warned.yaml", "-f manifests/warned.yaml --fail-on warning",
		"-f manifests/bad.yaml,manifests/good.yaml,manifests/warned.yaml", "-R -f manifests", "-f -",
	} {
		const odd = "kind: ConditionSet\napiVersion: autohealer.resourcestack.com/v1alpha1\nmetadata: {name: \"]]>\\u0001<&\\\"\\n\"}\nspec: {efect: \"]]>\\x07\"}\n---\n\t{"
		_, stdout, stderr := run(t, odd, append([]string{"validate", "-o", "junit"}, strings.Fields(args)...)...)
		if err := checkJUnit(stdout); err != nil || !strings.Contains(stdout, "<testcase ") {
			t.Errorf("validate %s: %v\n%s%s", args, err, stdout, stderr)
		}
	}
}

func TestWhatIsNoJUnitIsFound(t *testing.T) {
	const good = `<testsuites tests="1" failures="1"><testsuite name="a" tests="1" failures="1"><testcase name="n" classname="c"><failure message="m">text</failure></testcase></testsuite></testsuites>`
	if err := checkJUnit(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a wrong count": {`failures="1"><testcase`, `failures="0"><testcase`}, "no number": {`tests="1" failures="1"><testsuite`, `tests="one" failures="1"><testsuite`},
		"an unknown attribute": {`message=`, `massage=`}, "an attribute too few": {` classname="c"`, ``}, "an unknown element": {`failure message="m">text</failure`, `fail>text</fail`},
		"text between": {`<testcase`, `x<testcase`}, "out of order": {`</failure>`, `</failure><skipped/>`}, "no end": {`</testsuites>`, ``}, "a control character": {`text`, "\x01"},
	} {
		if bad := strings.Replace(good, change[0], change[1], 1); bad == good || checkJUnit(bad) == nil {
			t.Errorf("%s isn't found: %s", name, bad)
		}
	}
}
