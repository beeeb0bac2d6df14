package weederconfig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Book writes deletions down in their configs' status before they are done. Without it a manager that is killed would forget
// its last ones, and its successor would begin with budgets that are not spent. Deletions that are decided while one write
// is on its way go into the next together.
type Book struct {
	Client   client.Client
	Observer *Observer

	mu    sync.Mutex
	pages map[types.UID]*page // needs mu; by config
}

type page struct {
	// entered counts the deletions that were decided.
	entered atomic.Uint64

	mu      sync.Mutex // held while writing
	written uint64     // needs mu: how many of them are written down
}

// Enter writes down a deletion that the yard has reserved. After an error it may not be done.
func (b *Book) Enter(ctx context.Context, d *weed.Deletion) error {
	p := b.page(d.Config)
	number := p.entered.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written >= number {
		return nil // with another one's
	}
	all := p.entered.Load() // those were reserved before, so the summary has them
	if err := b.write(ctx, d); err != nil {
		return fmt.Errorf("note a deletion in the status of WeederConfig %s: %w", d.Key, err)
	}
	p.written = all
	return nil
}

func (b *Book) page(config types.UID) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[config]
	if p == nil {
		p = &page{}
		if b.pages == nil {
			b.pages = map[types.UID]*page{}
		}
		b.pages[config] = p
	}
	return p
}

// Forget drops a config that is gone.
func (b *Book) Forget(config types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pages, config)
}

// entries are the parts of the status that forbid after a restart.
type entries struct {
	Deleted         int64                     `json:"deleted"`
	ActiveWindows   int32                     `json:"activeWindows"`
	Windows         []v1alpha1.RecoveryWindow `json:"windows"`
	RecentDeletions []v1alpha1.PodDeletion    `json:"recentDeletions"`
	LastTriggered   *v1alpha1.Recovery        `json:"lastTriggered,omitempty"`
}

func (b *Book) write(ctx context.Context, d *weed.Deletion) error {
	sum, ok := b.Observer.yard().Summary(d.Config, b.Observer.moment())
	if !ok {
		return errors.New("it is gone")
	}
	var st v1alpha1.WeederConfigStatus
	recount(&st, sum)
	wc := &v1alpha1.WeederConfig{}
	wc.Namespace, wc.Name, wc.UID = d.Key.Namespace, d.Key.Name, d.Config
	return kube.MergeStatus(ctx, b.Client, wc, entries{
		Deleted: st.Deleted, ActiveWindows: st.ActiveWindows, Windows: st.Windows, RecentDeletions: st.RecentDeletions, LastTriggered: st.LastTriggered,
	})
}
