package probe_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhatAnOutcomeCounts(t *testing.T) {
	tests := []struct {
		class    probe.Class
		want     string
		unusable bool
	}{
		{"OK", "success", false},
		{"TooManyRequests", "transient", false},
		{"Unauthorized", "transient", false},
		{"Forbidden", "transient", false},
		{"Resolve", "failure", false},
		{"Dial", "failure", false},
		{"Timeout", "failure", false},
		{"TLS", "failure", false},
		{"Connection", "failure", false},
		{"ServerError", "failure", false},
		{"UnexpectedAnswer", "failure", false},
		{"SecretMissing", "unknown", true},
		{"SecretForbidden", "unknown", true},
		{"KubeconfigInvalid", "unknown", true},
		{"KubeconfigUnsafe", "unknown", true},
		{"AddressRefused", "unknown", true},
		{"NotRun", "unknown", false},
		{"", "unknown", false},
		{"SomethingNew", "unknown", false},
	}
	for _, tt := range tests {
		o := probe.Outcome{Class: tt.class}
		if got := o.Result().String(); got != tt.want || o.Class.Unusable() != tt.unusable {
			t.Errorf("%q is %s (unusable %t), want %s (%t)", tt.class, got, o.Class.Unusable(), tt.want, tt.unusable)
		}
	}
}
