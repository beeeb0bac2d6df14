package suite

import "testing"

func TestOfAPartOnlyItsSpecsAreTold(t *testing.T) {
	const (
		said = "\x16=== RUN   TestA\nRunning Suite\n•\x16=== RUN   TestA/x/y\n\x16--- PASS: TestA/x/y (1.00s)\n\x16=== NAME  TestA\n\x16--- PASS: TestA (1.00s)\nPASS\n"
		want = "Running Suite\n•\x16=== RUN   TestA/x/y\n\x16--- PASS: TestA/x/y (1.00s)\n\x16=== NAME  TestA\n"
	)
	if got := string(withoutTheTest([]byte(said))); got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}
