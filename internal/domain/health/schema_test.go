package health_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

func TestLayouts(t *testing.T) {
	const (
		version  = "spec: {versions: [{name: v1, served: true, subresources: {status: {}}, schema: {openAPIV3Schema: "
		fields   = "type: {}, status: {}, reason: {}, message: {}, lastTransitionTime: {}"
		gardener = "{properties: {status: {properties: {conditions: {type: array, items: {properties: {" + fields + ", lastUpdateTime: {}, codes: {}}}}}}}}"
		meta     = "{properties: {status: {properties: {conditions: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type], items: {properties: {" + fields + ", observedGeneration: {}}}}}}}}"
		atomic   = "{properties: {status: {properties: {conditions: {type: array, x-kubernetes-list-type: atomic, items: {properties: {" + fields + "}}}}}}}"
		otherKey = "{properties: {status: {properties: {conditions: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {properties: {" + fields + "}}}}}}}"
		noReason = "{properties: {status: {properties: {conditions: {type: array, items: {properties: {type: {}, status: {}, message: {}, lastTransitionTime: {}}}}}}}}"
		three    = "{properties: {status: {properties: {conditions: {type: array, items: {properties: {type: {}, status: {enum: ['True', 'False', Unknown]}, reason: {}, message: {}, lastTransitionTime: {}, lastUpdateTime: {}}"
		codeless = "{properties: {status: {properties: {conditions: {type: array, items: {properties: {" + fields + ", lastUpdateTime: {}}}}}}}}"
		limited  = "{properties: {status: {properties: {conditions: {type: array, items: {properties: {type: {}, status: {enum: ['True', 'False', Unknown]}, reason: {}, message: {}, lastTransitionTime: {}}}}}}}}"
		anyItem  = "{properties: {status: {properties: {conditions: {type: array, items: {x-kubernetes-preserve-unknown-fields: true}}}}}}"
	)
	for name, tt := range map[string]struct {
		spec string
		want health.Layout
	}{
		"Gardener's":                            {version + gardener + "}}]}", health.Layout{Shape: "Gardener", Unsupported: health.Unsupported{ObservedGeneration: true}}},
		"metav1.Condition":                      {version + meta + "}}]}", health.Layout{Shape: "Conditions", Map: true, Unsupported: health.Unsupported{Codes: true, LastUpdateTime: true}}},
		"metav1.Condition in a list":            {version + atomic + "}}]}", health.Layout{Shape: "Conditions", Unsupported: health.Unsupported{Codes: true, ObservedGeneration: true, LastUpdateTime: true}}},
		"Gardener's, without codes":             {version + codeless + "}}]}", health.Layout{Shape: "Gardener", Unsupported: health.Unsupported{Codes: true, ObservedGeneration: true}}},
		"metav1.Condition, as it is validated":  {version + limited + "}}]}", health.Layout{Shape: "Conditions", Unsupported: health.Unsupported{Codes: true, ObservedGeneration: true, LastUpdateTime: true}, NoProgressing: true}},
		"a time of updates, and no Progressing": {version + three + "}}}}}}}}]}", health.Layout{Shape: "Conditions", Unsupported: health.Unsupported{Codes: true, ObservedGeneration: true}, NoProgressing: true}},
		"no Progressing, and a time of updates is required": {version + three + ", required: [lastUpdateTime]}}}}}}}}]}", health.Layout{
			Problem: "the schema of status.conditions requires lastUpdateTime, as Gardener's, but allows no status Progressing",
		}},
		"entries of any shape":        {version + anyItem + "}}]}", health.Layout{Shape: "Conditions"}},
		"a status of any shape":       {version + "{properties: {status: {x-kubernetes-preserve-unknown-fields: true}}}}}]}", health.Layout{Shape: "Conditions"}},
		"an object of any shape":      {version + "{x-kubernetes-preserve-unknown-fields: true}}}]}", health.Layout{Shape: "Conditions"}},
		"a map by another key":        {version + otherKey + "}}]}", health.Layout{Problem: "status.conditions is a map, but not by type"}},
		"a field would be pruned":     {version + noReason + "}}]}", health.Layout{Problem: "the schema of status.conditions has no reason, which would be pruned"}},
		"no conditions":               {version + "{properties: {status: {properties: {}}}}}}]}", health.Layout{Problem: "the schema has no status.conditions, so what is written there would be pruned"}},
		"conditions are no list":      {version + "{properties: {status: {properties: {conditions: {type: string}}}}}}}]}", health.Layout{Problem: "status.conditions isn't a list"}},
		"no status":                   {version + "{properties: {spec: {}}}}}]}", health.Layout{Problem: "the schema has no status, so what is written there would be pruned"}},
		"no status subresource":       {"spec: {versions: [{name: v1, served: true}]}", health.Layout{Problem: "the kind has no status subresource"}},
		"a version that isn't served": {"spec: {versions: [{name: v1, served: false}]}", health.Layout{Problem: "version v1 isn't served"}},
		"another version":             {"spec: {versions: [{name: v2, served: true}]}", health.Layout{Problem: "the kind has no version v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := health.LayoutOf(object(t, definition+tt.spec), "v1"); got != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
}
