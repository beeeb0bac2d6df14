package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAConflictIsNoFailure(t *testing.T) {
	conflict := fmt.Errorf("write status of kernel: %w", apierrors.NewConflict(schema.GroupResource{}, "kernel", errors.New("modified")))
	refused := errors.New("connection refused")
	asked := reconcile.Result{RequeueAfter: time.Hour}
	for name, c := range map[string]struct {
		err, want error
		result    reconcile.Result
		logs      bool
	}{
		"done":          {nil, nil, asked, false},
		"a conflict":    {conflict, nil, reconcile.Result{RequeueAfter: time.Second}, true},
		"another error": {refused, refused, asked, false},
	} {
		t.Run(name, func(t *testing.T) {
			for verbosity, logs := range map[int]bool{0: false, 1: c.logs} {
				var lines []string
				logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: verbosity})
				result, err := AfterConflict(log.IntoContext(context.Background(), logger), asked, c.err, time.Second)
				if result != c.result || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("gives %v, %v", result, err)
				}
				if (len(lines) > 0) != logs || logs && !strings.Contains(lines[0], "modified") {
					t.Errorf("at verbosity %d it logs %q", verbosity, lines)
				}
			}
		})
	}
}
