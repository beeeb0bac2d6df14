package weeder_test

import (
	"testing"
	"time"
)

func TestAWindowIsFiveMinutesLongUnlessItIsSaid(t *testing.T) {
	for spec, want := range map[string]time.Duration{"": 5 * time.Minute, "watchDuration: 2m11s": 131 * time.Second} {
		c := newConfig(t, "wc", spec+"\nservicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}")
		if c.WatchDuration != want {
			t.Errorf("%q: %s, want %s", spec, c.WatchDuration, want)
		}
	}
}
