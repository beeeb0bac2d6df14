package main

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLeadershipIsHeldFromARenewalForAsLongAsItIsTrusted(t *testing.T) {
	client := fake.NewClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "lease", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "us"})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	l := &leadership{Interface: lock, Trusted: 10 * time.Second, Clock: clock}
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us", LeaseDurationSeconds: 15}
	steps := []struct {
		name string
		do   func() error
		held bool
	}{
		{"before it was ever taken", func() error { return nil }, false},
		{"taken", func() error { return l.Create(t.Context(), ours) }, true},
		{"nearly too old", func() error { clock.Step(9 * time.Second); return nil }, true},
		{"too old: another may lead by the time that a write arrives", func() error { clock.Step(time.Second); return nil }, false},
		{"renewed", func() error { return l.Update(t.Context(), ours) }, true},
		{"given up", func() error { return l.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}) }, false},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if held := l.Held(); held != step.held {
			t.Errorf("%s: held is %t", step.name, held)
		}
	}
}

func TestLeadershipIsNotHeldByARenewalThatFailed(t *testing.T) {
	client := fake.NewClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "lease", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "us"})
	if err != nil {
		t.Fatal(err)
	}
	l := &leadership{Interface: lock, Trusted: 10 * time.Second, Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}); err == nil {
		t.Fatal("a lease that isn't there was renewed")
	}
	if l.Held() {
		t.Error("it is held")
	}
}
