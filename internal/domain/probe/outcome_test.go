package probe_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhatAnOutcomeCounts(t *testing.T) {
	tests := []struct {
		class probe.Class
		want  string
	}{
		{"OK", "success"},
		{"TooManyRequests", "transient"},
		{"Unauthorized", "transient"},
		{"Forbidden", "transient"},
		{"Resolve", "failure"},
		{"Dial", "failure"},
		{"Timeout", "failure"},
		{"TLS", "failure"},
		{"Connection", "failure"},
		{"ServerError", "failure"},
		{"UnexpectedAnswer", "failure"},
		{"SecretMissing", "unknown"},
		{"SecretForbidden", "unknown"},
		{"KubeconfigInvalid", "unknown"},
		{"KubeconfigUnsafe", "unknown"},
		{"AddressRefused", "unknown"},
		{"NotRun", "unknown"},
		{"", "unknown"},
		{"SomethingNew", "unknown"},
	}
	for _, tt := range tests {
		o := probe.Outcome{Class: tt.class}
		if got := o.Result().String(); got != tt.want {
			t.Errorf("%q is %s, want %s", tt.class, got, tt.want)
		}
	}
}
