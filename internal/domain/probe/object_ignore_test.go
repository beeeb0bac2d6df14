package probe

import "testing"

func TestWhatAsksToBeIgnored(t *testing.T) {
	for _, key := range []string{"autohealer.resourcestack.com/ignore-scaling", "dependency-watchdog.gardener.cloud/ignore-scaling"} {
		for value, want := range map[string]bool{
			"true": true, "True": true, "TRUE": true, "t": true, "T": true, "1": true,
			"false": false, "0": false, "": false, "yes": false, "tRUE": false, " true": false,
		} {
			if got := Ignored(map[string]string{key: value}); got != want {
				t.Errorf("%s: %q is %v, want %v", key, value, got, want)
			}
		}
	}
	for name, annotations := range map[string]map[string]string{
		"none": nil, "what it had scaled down": {"dependency-watchdog.gardener.cloud/meltdown-protection-active": "", "dependency-watchdog.gardener.cloud/replicas": "1"},
	} {
		if Ignored(annotations) {
			t.Errorf("%s asks for nothing", name)
		}
	}
	both := map[string]string{"autohealer.resourcestack.com/ignore-scaling": "false", "dependency-watchdog.gardener.cloud/ignore-scaling": "true"}
	if !Ignored(both) {
		t.Error("one of both is enough")
	}
}
