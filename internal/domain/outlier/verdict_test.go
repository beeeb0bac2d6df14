package outlier_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

func TestReadPatchStatus(t *testing.T) {
	const status = "metadata: {generation: 2}\nstatus: {ancestors: [{conditions: ["
	for name, test := range map[string]struct{ object, want string }{
		"nothing yet":               {"metadata: {generation: 2}", ""},
		"programmed":                {status + `{type: Accepted, status: "True", reason: Accepted, observedGeneration: 2}, {type: Programmed, status: "True", reason: Programmed, observedGeneration: 2}]}]}`, "True Programmed"},
		"of what it was before":     {status + `{type: Programmed, status: "True", reason: Programmed, observedGeneration: 1}]}]}`, ""},
		"a cluster is gone":         {status + `{type: Programmed, status: "False", reason: ResourceNotFound, observedGeneration: 2}]}]}`, "False ResourceNotFound"},
		"switched off":              {status + `{type: Accepted, status: "False", reason: Disabled, observedGeneration: 2}]}]}`, "False Disabled"},
		"switched off since it was": {status + `{type: Programmed, status: "True", reason: Programmed, observedGeneration: 2}, {type: Accepted, status: "False", reason: Disabled, observedGeneration: 2}]}]}`, "False Disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := outlier.ReadPatchStatus(object(t, test.object))
			got := ""
			if c != nil {
				got = string(c.Status) + " " + c.Reason
			}
			if err != nil || got != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
