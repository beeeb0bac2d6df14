package manager

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/internal/installation"
)

func TestLeadershipIsHeldFromARenewalForAsLongAsItIsTrusted(t *testing.T) {
	client := fake.NewClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "lease", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "us"})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	l := &leadership{Interface: lock, Trusted: 10 * time.Second, Clock: clock, Ours: nobodyElses, Undoubted: never}
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
	l := &leadership{Interface: lock, Trusted: 10 * time.Second, Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Ours: nobodyElses, Undoubted: never}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}); err == nil {
		t.Fatal("a lease that isn't there was renewed")
	}
	if l.Held() {
		t.Error("it is held")
	}
}

func nobodyElses(context.Context) error { return nil }

func never() bool { return false }

func TestLeadershipNeedsAClusterThatIsTheInstallations(t *testing.T) {
	client := fake.NewClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "lease", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "us"})
	if err != nil {
		t.Fatal(err)
	}
	var whose error
	l := &leadership{
		Interface: lock, Trusted: 10 * time.Second, Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Ours: func(context.Context) error { return whose },
		Undoubted: never,
	}
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us", LeaseDurationSeconds: 15}
	other, unknown := &installation.Other{Namespace: "other"}, errors.New("time-out")
	for _, step := range []struct {
		name  string
		whose error
		do    func(context.Context, resourcelock.LeaderElectionRecord) error
		held  bool
	}{
		{"it can't be told whose the cluster is", unknown, l.Create, false},
		{"the cluster is another installation's", other, l.Create, false},
		{"it is ours", nil, l.Create, true},
		{"it can't be told any more: what was held is, for as long as it is trusted", unknown, l.Update, true},
		{"it is another's now", other, l.Update, false},
		{"it is ours again", nil, l.Update, true},
	} {
		whose = step.whose
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if errors.Is(whose, other) { // it waits then
			ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		}
		err := step.do(ctx, ours)
		if !errors.Is(err, step.whose) {
			t.Errorf("%s: %v", step.name, err)
		}
		if waited := ctx.Err() != nil; waited != errors.Is(whose, other) {
			t.Errorf("%s: waited is %t", step.name, waited)
		}
		cancel()
		if held := l.Held(); held != step.held {
			t.Errorf("%s: held is %t", step.name, held)
		}
	}
}

func TestARenewalReadsWhoseTheClusterIsUnlessNobodyActs(t *testing.T) {
	client := fake.NewClientset()
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "lease", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: "us"})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	reads, undoubted := 0, true
	l := &leadership{
		Interface: lock, Trusted: 10 * time.Second, Clock: clock,
		Ours: func(context.Context) error { reads++; return nil }, Undoubted: func() bool { return undoubted },
	}
	ours := resourcelock.LeaderElectionRecord{HolderIdentity: "us", LeaseDurationSeconds: 15}
	if err := l.Create(t.Context(), ours); err != nil || reads != 1 {
		t.Fatalf("it is taken after %d reads, error %v", reads, err)
	}
	for _, step := range []struct {
		name   string
		before func()
		reads  int
	}{
		{"nothing is done", func() {}, 0},
		{"somebody has acted: the watch may have died", func() { l.Held() }, 1},
		{"and has done no more since", func() {}, 0},
		{"the watch told of something", func() { undoubted = false }, 1},
		{"which was nothing", func() { undoubted = true }, 0},
		{"it is no longer held", func() { clock.Step(10 * time.Second) }, 1},
	} {
		reads = 0
		step.before()
		if err := l.Update(t.Context(), ours); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if reads != step.reads {
			t.Errorf("%s: %d reads", step.name, reads)
		}
	}
}
