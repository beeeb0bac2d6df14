package v1alpha1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

func TestDurationOr(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
		bad  bool
	}{
		{"", 42 * time.Second, false},
		{"0s", 0, false},
		{"90s", 90 * time.Second, false},
		{"1h30m", 90 * time.Minute, false},
		{"1.5h", 90 * time.Minute, false},
		{"250ms", 250 * time.Millisecond, false},
		{"8760h", 365 * 24 * time.Hour, false},
		{"5", 0, true},
		{"1d", 0, true},
		{"99999999h", 0, true},
		{"soon", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := v1alpha1.Duration(tt.text).Or(42 * time.Second)
			if (err != nil) != tt.bad || !tt.bad && got != tt.want {
				t.Errorf("%q is %s, %v; want %s", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestADurationIsGivenBackAsItWasWritten(t *testing.T) {
	for _, text := range []string{`"5m"`, `"300s"`, `"1h0m"`, `"soon"`} {
		var d v1alpha1.Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("read %s: %v", text, err)
		}
		if out, err := json.Marshal(d); err != nil || string(out) != text {
			t.Errorf("%s is written as %s, %v", text, out, err)
		}
	}
}
