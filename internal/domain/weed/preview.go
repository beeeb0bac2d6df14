package weed

// Preview is what a config would do if it were in force now. Counts are of all; samples are sorted and at most SampleSize,
// pods and Services as namespace/name.
type Preview struct {
	// Namespaces that the config holds in.
	Namespaces int

	// Services watched, in all those namespaces; MissingServices of them don't exist.
	Services            int
	MissingServices     int
	MissingServiceNames []string
	// SelectorlessServices have pods only where someone else writes their EndpointSlices.
	SelectorlessServices     int
	SelectorlessServiceNames []string
	// ExternalServices are of type ExternalName: no pod is behind them, so they never turn Ready.
	ExternalServices     int
	ExternalServiceNames []string
	// PublishingServices publish not-ready addresses: their clients may have reached them before they were Ready.
	PublishingServices     int
	PublishingServiceNames []string

	// SelectedPods depend on some Service; SelectedPodNames samples them.
	SelectedPods     int
	SelectedPodNames []string
	// CrashLoopingPods of them crash-loop now.
	CrashLoopingPods     int
	CrashLoopingPodNames []string
	// WouldDelete of these would be deleted at once: their Service recovered less than a watchDuration ago, and nothing but
	// the cluster-wide limit stands before it.
	WouldDelete         int
	WouldDeletePodNames []string
	// Limit is how many pods may be deleted in a minute, over all configs.
	Limit int

	// LargestShare is the largest share of one namespace's pods that is selected, in percent, and LargestShareNamespace
	// where that is.
	LargestShare          int
	LargestShareNamespace string

	// BackingPods are selected for a Service that they are themselves behind.
	BackingPods     int
	BackingPodNames []string
	// AutohealerPods, OwnerlessPods and MirrorPods are selected and never deleted; JobPods are deleted, which counts as a
	// failure of their Job.
	AutohealerPods     int
	AutohealerPodNames []string
	OwnerlessPods      int
	OwnerlessPodNames  []string
	MirrorPods         int
	MirrorPodNames     []string
	JobPods            int
	JobPodNames        []string
	// QuorumStatefulSets have at least three pods, of which some are selected: deleting several may cost their quorum.
	QuorumStatefulSets     int
	QuorumStatefulSetNames []string

	// SharedPods are selected by another config, too, that may act; SharedWith names these configs.
	SharedPods int
	SharedWith []string

	// Cycles are ways, over all configs that may act, on which Services wait for each other ("namespace: a → b → a"): each recovery would
	// delete pods behind the next.
	Cycles     int
	CyclePaths []string
}
