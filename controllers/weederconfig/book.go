package weederconfig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Book writes deletions down in their configs' status before they are done. Without it a manager that is killed would forget
// its last ones, and its successor would begin with budgets that are not spent.
//
// No write takes back what another leader wrote: each names the state of the config that it replaces, and after that was known
// this process was surely the leader. So it is of a time in which nobody else wrote, or the API server refuses the write.
type Book struct {
	Client   client.Client
	Observer *Observer
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Leads says whether this replica surely leads. Default: it does.
	Leads func() bool
	// Meanwhile is called beside each write, to ask for what must be known next. Default: nothing is.
	Meanwhile func(context.Context, *weeder.Deletion)

	mu    sync.Mutex
	pages map[types.UID]*page // needs mu: by config, while somebody uses it
}

// Inherit reads what earlier leaders wrote down for all configs, and lets this process act for those that it knows: the minute
// and a workload's repeats are shared by all of them. It is called before the first deletion for a config.
func (b *Book) Inherit(ctx context.Context, d *weeder.Deletion) error {
	var all v1alpha1.WeederConfigList
	if err := b.Live.List(ctx, &all); err != nil {
		return fmt.Errorf("read the WeederConfigs before the first deletion for %s: %w", d.Key, err)
	}
	if !b.leads() {
		return errNotLeading
	}
	records := map[types.UID]v1alpha1.WeederConfigStatus{}
	for i := range all.Items {
		if wc := &all.Items[i]; wc.DeletionTimestamp == nil {
			records[wc.UID] = wc.Status
		}
	}
	if _, ok := records[d.Config]; !ok {
		return fmt.Errorf("WeederConfig %s isn't the one that was admitted any more", d.Key)
	}
	for _, uid := range b.Observer.weeder().Inherit(records, b.Observer.moment()) {
		if name := b.unread(&all, uid); name != "" {
			return fmt.Errorf("WeederConfig %s, for which pods were deleted lately, isn't judged yet", name)
		}
	}
	b.Observer.weeder().Claim(slices.Collect(maps.Keys(records)))
	return nil
}

// unread names a config that isn't read yet, "" for one that can't be: what was done for that counts no more.
func (b *Book) unread(all *v1alpha1.WeederConfigList, uid types.UID) string {
	i := slices.IndexFunc(all.Items, func(wc v1alpha1.WeederConfig) bool { return wc.UID == uid })
	key := client.ObjectKeyFromObject(&all.Items[i])
	if config, ok := b.Observer.policies.Get(key); ok && config.UID == uid && config.Read.unreadable != nil {
		return ""
	}
	return key.String()
}

// errNotLeading: another replica may lead by now.
var errNotLeading = errors.New("this replica no longer surely leads")

func (b *Book) leads() bool { return b.Leads == nil || b.Leads() }

// Enter writes down a deletion that the planner has reserved. After an error it may not be done; otherwise leave must be called
// once it is over, whatever became of it.
func (b *Book) Enter(ctx context.Context, d *weeder.Deletion) (leave func(), err error) {
	p := b.take(d.Config)
	if err := p.enter(func() error { return b.write(ctx, d, p) }); err != nil {
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

// rewrites bounds how often a write is tried anew because the config changed meanwhile.
const rewrites = 4

// write writes on a page, whose pen the caller holds.
func (b *Book) write(ctx context.Context, d *weeder.Deletion, p *page) error {
	if b.Meanwhile != nil {
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { b.Meanwhile(ctx, d) })
	}
	if config, ok := b.Observer.policies.Get(d.Key); !ok || config.UID != d.Config {
		return errors.New("it is gone")
	} else if p.version == "" {
		p.version = config.Object.ResourceVersion
	}
	for range rewrites {
		err := b.replace(ctx, d, p)
		if !apierrors.IsConflict(err) {
			return err
		}
		if err := b.turnTo(ctx, d, p); err != nil {
			return err
		}
	}
	return errors.New("it changes all the time")
}

// replace writes over the state of the config that the page knows.
func (b *Book) replace(ctx context.Context, d *weeder.Deletion, p *page) error {
	if !b.leads() { // asked after that state was known
		return errNotLeading
	}
	sum, ok := b.Observer.weeder().Recorded(d.Config, b.Observer.moment())
	if !ok {
		return errors.New("it is gone")
	}
	var st v1alpha1.WeederConfigStatus
	recount(&st, sum)
	wc := about(v1alpha1.GroupVersion.WithKind(kindWeederConfig))
	wc.Namespace, wc.Name, wc.UID, wc.ResourceVersion = d.Key.Namespace, d.Key.Name, d.Config, p.version
	err := kube.MergeStatus(ctx, b.Client, wc, entries{
		Deleted: st.Deleted, ActiveWindows: st.ActiveWindows, Windows: st.Windows, RecentDeletions: st.RecentDeletions, LastTriggered: st.LastTriggered, Spent: st.Spent,
	})
	if err == nil {
		p.version = wc.ResourceVersion
	}
	return err
}

// turnTo reads of which state the config is now.
func (b *Book) turnTo(ctx context.Context, d *weeder.Deletion, p *page) error {
	wc := about(v1alpha1.GroupVersion.WithKind(kindWeederConfig))
	if err := b.Live.Get(ctx, d.Key, wc); err != nil {
		return fmt.Errorf("read its state: %w", err)
	}
	if wc.UID != d.Config {
		return errors.New("another has its name")
	}
	p.version = wc.ResourceVersion
	return nil
}
