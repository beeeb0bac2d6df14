package limit_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func TestUnderACapAllItsValuesHold(t *testing.T) {
	for name, tt := range map[string]struct {
		values          []string
		small, large    int // of 10 nodes, and of 1000
		zone            int // of 30 nodes of a zone, in a cluster of 90
		text            string
		percent, number int
	}{
		"no value allows none":                                 {nil, 0, 0, 0, "0", 100, 0},
		"a percentage alone":                                   {[]string{"10%"}, 1, 100, 3, "10%", 10, 2147483647},
		"a number alone":                                       {[]string{"4"}, 4, 4, 4, "4", 100, 4},
		"the stricter depends on the cluster's size":           {[]string{"10%", "4"}, 1, 4, 3, "10% and 4", 10, 4},
		"of two percentages the smaller":                       {[]string{"50%", "20%", "30%"}, 2, 200, 6, "20%", 20, 2147483647},
		"of two numbers the smaller":                           {[]string{"7", "5"}, 5, 5, 5, "5", 100, 5},
		"one that can't be read allows none":                   {[]string{"50%", "many"}, 0, 0, 0, "50% and 0", 50, 0},
		"a percentage of zero beside a number allows none":     {[]string{"0%", "5"}, 0, 0, 0, "0% and 5", 0, 5},
		"a number below zero allows none, and not the reverse": {[]string{"-3", "50%"}, 0, 0, 0, "50% and 0", 50, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var values []intstr.IntOrString
			for _, v := range tt.values {
				values = append(values, intstr.Parse(v))
			}
			c := limit.CapOf(values...)
			if small, large, zone := c.Of(10), c.Of(1000), c.OfZone(30, 90); small != tt.small || large != tt.large || zone != tt.zone {
				t.Errorf("allows %d of 10, %d of 1000, %d of a zone's 30; want %d, %d, %d", small, large, zone, tt.small, tt.large, tt.zone)
			}
			if percent, number := c.Strictest(); percent != tt.percent || number != tt.number || c.String() != tt.text {
				t.Errorf("is %s with %d%% and %d; want %s with %d%% and %d", c, percent, number, tt.text, tt.percent, tt.number)
			}
		})
	}
}

func TestInACapWithOneValueThatHoldsAsIs(t *testing.T) {
	for _, text := range []string{"10%", "0%", "100%", "3", "0"} {
		for total := range 200 {
			if got, want := limit.CapOf(intstr.Parse(text)).Of(total), limit.Of(intstr.Parse(text), total); got != want {
				t.Fatalf("%s of %d: got %d, want %d", text, total, got, want)
			}
		}
	}
}
