package weederconfig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Book writes deletions down in their configs' status before they are done. Without it a manager that is killed would forget
// its last ones, and its successor would begin with budgets that are not spent.
type Book struct {
	Client   client.Client
	Observer *Observer
	// Meanwhile is called beside each write, to ask for what must be known next. Default: nothing is.
	Meanwhile func(context.Context, *weed.Deletion)

	mu    sync.Mutex
	pages map[types.UID]*page // needs mu: by config, while somebody uses it
}

// Enter writes down a deletion that the yard has reserved. After an error it may not be done; otherwise leave must be called
// once it is over, whatever became of it.
func (b *Book) Enter(ctx context.Context, d *weed.Deletion) (leave func(), err error) {
	p := b.take(d.Config)
	if err := p.enter(func() error { return b.write(ctx, d) }); err != nil {
		b.giveBack(d.Config)
		return nil, fmt.Errorf("note a deletion in the status of WeederConfig %s: %w", d.Key, err)
	}
	return func() {
		p.leave()
		b.giveBack(d.Config)
	}, nil
}

func (b *Book) take(config types.UID) *page {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[config]
	if p == nil {
		p = newPage()
		if b.pages == nil {
			b.pages = map[types.UID]*page{}
		}
		b.pages[config] = p
	}
	p.users++
	return p
}

func (b *Book) giveBack(config types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pages[config]; p.users > 1 {
		p.users--
	} else {
		delete(b.pages, config)
	}
}

// entries are the parts of the status that forbid after a restart.
type entries struct {
	Deleted         int64                     `json:"deleted"`
	ActiveWindows   int32                     `json:"activeWindows"`
	Windows         []v1alpha1.RecoveryWindow `json:"windows"`
	RecentDeletions []v1alpha1.PodDeletion    `json:"recentDeletions"`
	LastTriggered   *v1alpha1.Recovery        `json:"lastTriggered,omitempty"`
	Spent           *v1alpha1.SpentBudgets    `json:"spent"`
}

func (b *Book) write(ctx context.Context, d *weed.Deletion) error {
	if b.Meanwhile != nil {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { b.Meanwhile(ctx, d) })
	}
	sum, ok := b.Observer.yard().Booked(d.Config, b.Observer.moment())
	if !ok {
		return errors.New("it is gone")
	}
	var st v1alpha1.WeederConfigStatus
	recount(&st, sum)
	wc := &metav1.PartialObjectMetadata{}
	wc.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindWeederConfig))
	wc.Namespace, wc.Name, wc.UID = d.Key.Namespace, d.Key.Name, d.Config
	return kube.MergeStatus(ctx, b.Client, wc, entries{
		Deleted: st.Deleted, ActiveWindows: st.ActiveWindows, Windows: st.Windows, RecentDeletions: st.RecentDeletions, LastTriggered: st.LastTriggered, Spent: st.Spent,
	})
}
