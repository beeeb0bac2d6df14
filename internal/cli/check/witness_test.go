package check

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhichWitnessesAGuardrailTakes(t *testing.T) {
	checker, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	const certificate = `-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n`
	for witnesses, refused := range map[string]string{
		`{name: a, address: "status.example.com:443"}`:                               "",
		`{name: a, address: "8.8.8.8:1"}, {name: b, address: "[2001:db8::1]:65535"}`: "",
		`{name: a, address: "a:443", caBundle: "` + certificate + `"}`:               "",
		`{name: a, address: "a:443", caBundle: "MIIB"}`:                              "write certificates in PEM",
		`{name: a, address: "https://status.example.com"}`:                           "write host:port",
		`{name: a, address: "status.example.com"}`:                                   "write host:port",
		`{name: a, address: "a:0"}`:                                                  "write host:port",
		`{name: a, address: "a:65536"}`:                                              "write host:port",
		`{name: a, address: "2001:db8::1"}`:                                          "write host:port",
		`{name: a, address: "a:443"}, {name: b, address: "a:443"}`:                   "name each address once",
		`{name: a, address: "a:443"}, {name: a, address: "b:443"}`:                   "is a duplicate",
		`{name: "", address: "a:443"}`:                                               "name",
	} {
		object := parse(t, fmt.Sprintf(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: a}, spec: {witnesses: [%s]}}`, witnesses))
		r := checker.Object(t.Context(), object, nil)
		var says []string
		for _, v := range r.Violations {
			says = append(says, v.Message)
		}
		if got := strings.Join(says, "\n"); r.Allowed != (refused == "") || !strings.Contains(got, refused) {
			t.Errorf("%s: allowed: %t: %s", witnesses, r.Allowed, got)
		}
	}
}
