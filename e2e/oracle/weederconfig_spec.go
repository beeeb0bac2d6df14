package oracle

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// weeding is a WeederConfig's spec with the defaults of its reference page.
type weeding struct {
	Namespace string `json:"-"`

	WatchDuration metav1.Duration `json:"watchDuration"`
	Services      map[string]struct {
		PodSelectors []metav1.LabelSelector `json:"podSelectors"`
	} `json:"servicesAndDependantSelectors"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	ReadyPolicy       string                `json:"readyPolicy"`
	Init              bool                  `json:"includeInitContainers"`
	Deletion          string                `json:"deletion"`
	MaxDeletions      int                   `json:"maxDeletionsPerWatch"`
	MaxRepeats        int                   `json:"maxRepeatsPerOwner"`
	Cooldown          metav1.Duration       `json:"cooldown"`
	Mode              string                `json:"mode"`
	Account           string                `json:"serviceAccountName"`
}

func weedingOf(config *unstructured.Unstructured) (weeding, error) {
	spec := weeding{
		Namespace: config.GetNamespace(), WatchDuration: metav1.Duration{Duration: 5 * time.Minute}, Init: true, Account: "default",
		MaxDeletions: 100, MaxRepeats: 3, Cooldown: metav1.Duration{Duration: 10 * time.Second},
	}
	encoded, err := json.Marshal(config.Object["spec"])
	if err != nil {
		return weeding{}, err
	}
	return spec, json.Unmarshal(encoded, &spec)
}

// holdsIn says whether the config is about a namespace with these labels.
func (w weeding) holdsIn(name string, of map[string]string) bool {
	if w.NamespaceSelector == nil {
		return name == w.Namespace
	}
	return w.Namespace == ownNamespace && matches(w.NamespaceSelector, of)
}

func (w weeding) selects(service string, p *pod) bool {
	for _, s := range w.Services[service].PodSelectors {
		if matches(&s, p.labels) {
			return true
		}
	}
	return false
}

func matches(s *metav1.LabelSelector, of map[string]string) bool {
	compiled, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && compiled.Matches(labels.Set(of))
}
