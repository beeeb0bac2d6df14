package health_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
)

// kinds under check, as the API server has them but for what a case is about.
const (
	deployment  = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: ns, generation: 2}\n"
	statefulSet = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: d, namespace: ns, generation: 2}\n"
	replicaSet  = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: d, namespace: ns, generation: 2}\n"
	daemonSet   = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d, namespace: ns, generation: 2}\n"
	job         = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: d, namespace: ns}\n"
	pod         = "apiVersion: v1\nkind: Pod\nmetadata: {name: d, namespace: ns}\n"
	claim       = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: d, namespace: ns}\n"
	service     = "apiVersion: v1\nkind: Service\nmetadata: {name: d, namespace: ns}\n"
	definition  = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: d}\n"
	managed     = "apiVersion: resources.gardener.cloud/v1alpha1\nkind: ManagedResource\nmetadata: {name: d, namespace: ns, generation: 2}\n"
)

// Conditions of Deployments and ManagedResources.
const (
	available   = "{type: Available, status: 'True'}"
	unavailable = "{type: Available, status: 'False', reason: MinimumReplicasUnavailable, message: no minimum}"
	rolledOut   = "{type: Progressing, status: 'True', reason: NewReplicaSetAvailable}"
	rollsOut    = "{type: Progressing, status: 'True', reason: ReplicaSetUpdated}"
	paused      = "{type: Progressing, status: Unknown, reason: DeploymentPaused}"
	deadline    = "{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}"
	noQuota     = "{type: ReplicaFailure, status: 'True', reason: FailedCreate, message: exceeded quota}"
	applied     = "{type: ResourcesApplied, status: 'True'}"
	fine        = "{type: ResourcesHealthy, status: 'True'}"
)

func conditions(more string, list ...string) string {
	return "status: {" + more + "conditions: [" + strings.Join(list, ", ") + "]}"
}

func TestBuiltinChecks(t *testing.T) {
	const now = "observedGeneration: 2, "
	for name, tt := range map[string]struct {
		kind, status string
		want         health.Status
		detail       string
	}{
		"Deployment: available, rolled out":            {deployment, conditions(now, available, rolledOut), "True", ""},
		"Deployment: available in a rollout":           {deployment, conditions(now, available, rollsOut), "True", ""},
		"Deployment: without the optional conditions":  {deployment, conditions(now, available), "True", ""},
		"Deployment: its status is old":                {deployment, conditions("observedGeneration: 1, ", available, rolledOut), "Progressing", "ns/d: Deployment was changed, and its status is of generation 1 instead of 2"},
		"Deployment: just made":                        {deployment, "status: {}", "Progressing", "is of generation 0"},
		"Deployment: not available":                    {deployment, conditions(now, unavailable, rolledOut), "False", "ns/d: condition Available of Deployment is False (MinimumReplicasUnavailable): no minimum"},
		"Deployment: not available, no other":          {deployment, conditions(now, unavailable), "False", "Available"},
		"Deployment: not available yet in a rollout":   {deployment, conditions(now, unavailable, rollsOut), "Progressing", "Available"},
		"Deployment: the rollout is stuck":             {deployment, conditions(now, available, deadline), "False", "ProgressDeadlineExceeded"},
		"Deployment: quota":                            {deployment, conditions(now, available, rolledOut, noQuota), "False", "exceeded quota"},
		"Deployment: paused":                           {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"availableReplicas: 2, ", available, paused), "True", "ns/d: Deployment is paused"},
		"Deployment: paused, and fewer than it must":   {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"availableReplicas: 1, replicas: 2, updatedReplicas: 2, ", unavailable, paused), "False", "Available"},
		"Deployment: paused, and as many as it must":   {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"availableReplicas: 1, replicas: 2, updatedReplicas: 2, ", available, paused), "True", ""},
		"Deployment: paused in a rollout":              {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"replicas: 2, updatedReplicas: 1, ", unavailable, paused), "Progressing", "Available"},
		"Deployment: paused before old pods went":      {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"replicas: 3, updatedReplicas: 2, ", unavailable, paused), "Progressing", "Available"},
		"Deployment: paused without quota":             {deployment, "spec: {replicas: 2, paused: true}\n" + conditions(now+"availableReplicas: 2, ", available, paused, noQuota), "False", "exceeded quota"},
		"Deployment: paused, and not seen yet":         {deployment, "spec: {replicas: 2, paused: true}\n" + conditions("observedGeneration: 1, availableReplicas: 2, ", available, paused), "Progressing", "generation 1"},
		"Deployment: resumed":                          {deployment, "spec: {replicas: 2}\n" + conditions(now, available, "{type: Progressing, status: Unknown, reason: DeploymentResumed}"), "True", ""},
		"Deployment: quota in a rollout":               {deployment, conditions(now, unavailable, rollsOut, noQuota), "False", "exceeded quota"},
		"Deployment: no quota trouble":                 {deployment, conditions(now, available, "{type: ReplicaFailure, status: 'False'}"), "True", ""},
		"Deployment: Available is Unknown":             {deployment, conditions(now, "{type: Available, status: Unknown}"), "Unknown", "Available"},
		"Deployment: no condition yet":                 {deployment, conditions(now), "Progressing", "no condition Available yet"},
		"Deployment: can't be read":                    {deployment, "spec: {replicas: many}", "Unknown", "read Deployment d"},
		"StatefulSet: all ready":                       {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, readyReplicas: 3}", "True", ""},
		"StatefulSet: more than wanted":                {statefulSet, "spec: {replicas: 1}\nstatus: {observedGeneration: 2, readyReplicas: 3}", "True", ""},
		"StatefulSet: its status is old":               {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 1, readyReplicas: 3}", "Progressing", "generation 1"},
		"StatefulSet: one isn't ready":                 {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 3, readyReplicas: 2, currentRevision: a, updateRevision: a}", "False", "2 of 3 replicas"},
		"StatefulSet: one is still to be made":         {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 2, readyReplicas: 2, currentRevision: a, updateRevision: a}", "Progressing", "2 of 3 replicas"},
		"StatefulSet: one isn't ready in a rollout":    {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, readyReplicas: 2, currentRevision: a, updateRevision: b}", "Progressing", "2 of 3 replicas"},
		"StatefulSet: all ready in a rollout":          {statefulSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, readyReplicas: 3, currentRevision: a, updateRevision: b}", "True", ""},
		"StatefulSet: replicas aren't set":             {statefulSet, "status: {observedGeneration: 2, replicas: 1}", "False", "0 of 1 replicas"},
		"StatefulSet: none are wanted":                 {statefulSet, "spec: {replicas: 0}\nstatus: {observedGeneration: 2}", "True", ""},
		"ReplicaSet: all ready":                        {replicaSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, readyReplicas: 3}", "True", ""},
		"ReplicaSet: its status is old":                {replicaSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 1, readyReplicas: 3}", "Progressing", "generation 1"},
		"ReplicaSet: one isn't ready":                  {replicaSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 3, readyReplicas: 2}", "False", "2 of 3 replicas"},
		"ReplicaSet: one is still to be made":          {replicaSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 2, readyReplicas: 2}", "Progressing", "2 of 3 replicas"},
		"ReplicaSet: quota":                            {replicaSet, "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 2, readyReplicas: 2, conditions: [" + noQuota + "]}", "False", "exceeded quota"},
		"DaemonSet: on all nodes":                      {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 4}", "True", ""},
		"DaemonSet: on no nodes":                       {daemonSet, "status: {observedGeneration: 2}", "True", ""},
		"DaemonSet: its status is old":                 {daemonSet, "status: {observedGeneration: 1}", "Progressing", "generation 1"},
		"DaemonSet: misscheduled":                      {daemonSet, "status: {observedGeneration: 2, numberMisscheduled: 1}", "False", "1 pods of DaemonSet run on nodes where they shouldn't"},
		"DaemonSet: not on all nodes":                  {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 3, updatedNumberScheduled: 4}", "False", "3 of 4 pods of DaemonSet are scheduled"},
		"DaemonSet: one is unavailable":                {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 4, numberUnavailable: 1}", "False", "1 of 4 pods of DaemonSet are unavailable, and 0 may be"},
		"DaemonSet: one is unavailable in a rollout":   {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 1}", "True", ""},
		"DaemonSet: two are unavailable in a rollout":  {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 2}", "False", "and 1 may be"},
		"DaemonSet: two of 40% in a rollout":           {daemonSet, "spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 40%}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 2}", "True", ""},
		"DaemonSet: none may be in a rollout":          {daemonSet, "spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 1}", "False", "and 0 may be"},
		"DaemonSet: maxUnavailable can't be read":      {daemonSet, "spec: {updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: some}}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 1}", "False", "and 0 may be"},
		"DaemonSet: OnDelete has no rollout":           {daemonSet, "spec: {updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberUnavailable: 1}", "False", "and 0 may be"},
		"Job: at work":                                 {job, "status: {active: 1}", "True", ""},
		"Job: complete":                                {job, "status: {conditions: [{type: Complete, status: 'True'}]}", "True", ""},
		"Job: failed":                                  {job, "status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}", "False", "ns/d: Job failed (BackoffLimitExceeded): too often"},
		"Job: Failed is False":                         {job, "status: {conditions: [{type: Failed, status: 'False'}]}", "True", ""},
		"Pod: ready":                                   {pod, "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", "True", ""},
		"Pod: succeeded":                               {pod, "status: {phase: Succeeded, conditions: [{type: Ready, status: 'False'}]}", "True", ""},
		"Pod: not ready":                               {pod, "status: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady}]}", "False", "ContainersNotReady"},
		"Pod: failed":                                  {pod, "status: {phase: Failed, reason: Evicted}", "False", "Pod failed (Evicted)"},
		"Pod: pending":                                 {pod, "status: {phase: Pending}", "Progressing", "Pending"},
		"Pod: its node doesn't answer":                 {pod, "status: {phase: Running, conditions: [{type: Ready, status: Unknown}]}", "Unknown", "Ready"},
		"Pod: no condition":                            {pod, "status: {phase: Running}", "Progressing", "no condition Ready"},
		"Pod: pending, and its image isn't there":      {pod, "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: no such image}}}]}", "False", "container c of Pod doesn't start (ErrImagePull): no such image"},
		"Pod: pending, and being made":                 {pod, "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}", "Progressing", "Pending"},
		"Pod: its init container crashes":              {pod, "status: {phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}}]}", "False", "container i"},
		"Pod: ready, and another container crashes":    {pod, "status: {phase: Running, conditions: [{type: Ready, status: 'True'}], initContainerStatuses: [{name: i, state: {waiting: {reason: CrashLoopBackOff}}}]}", "True", ""},
		"PersistentVolumeClaim: bound":                 {claim, "status: {phase: Bound}", "True", ""},
		"PersistentVolumeClaim: pending":               {claim, "status: {phase: Pending}", "Progressing", "isn't bound"},
		"PersistentVolumeClaim: lost":                  {claim, "status: {phase: Lost}", "False", "lost its volume"},
		"Service: inside the cluster":                  {service, "spec: {type: ClusterIP}", "True", ""},
		"Service: with an address":                     {service, "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}", "True", ""},
		"Service: without an address":                  {service, "spec: {type: LoadBalancer}", "Progressing", "has no address"},
		"CRD: served":                                  {definition, conditions("", "{type: Established, status: 'True'}", "{type: NamesAccepted, status: 'True'}"), "True", ""},
		"CRD: its names are taken":                     {definition, conditions("", "{type: Established, status: 'True'}", "{type: NamesAccepted, status: 'False', reason: Conflict}"), "False", "NamesAccepted"},
		"CRD: not established":                         {definition, conditions("", "{type: Established, status: 'False'}", "{type: NamesAccepted, status: 'True'}"), "False", "d: condition Established"},
		"CRD: just made":                               {definition, "status: {}", "Progressing", "NamesAccepted yet"},
		"ManagedResource: healthy":                     {managed, conditions(now, applied, fine), "True", ""},
		"ManagedResource: its status is old":           {managed, conditions("observedGeneration: 1, ", applied, fine), "Progressing", "generation 1"},
		"ManagedResource: not applied":                 {managed, conditions(now, "{type: ResourcesApplied, status: 'False', reason: ApplyFailed}", fine), "False", "ApplyFailed"},
		"ManagedResource: being applied":               {managed, conditions(now, "{type: ResourcesApplied, status: Progressing}", fine), "Progressing", "ResourcesApplied"},
		"ManagedResource: never applied":               {managed, conditions(now, fine), "Progressing", "ResourcesApplied yet"},
		"ManagedResource: not healthy":                 {managed, conditions(now, applied, "{type: ResourcesHealthy, status: 'False', reason: DeploymentUnhealthy, message: x is}"), "False", "ns/d: condition ResourcesHealthy of ManagedResource is False (DeploymentUnhealthy): x is"},
		"ManagedResource: its own check failed":        {managed, conditions(now, applied, "{type: ResourcesHealthy, status: Unknown}"), "Unknown", "ResourcesHealthy"},
		"ManagedResource: not checked yet":             {managed, conditions(now, applied, "{type: ResourcesHealthy, status: Unknown, reason: HealthChecksPending}"), "Progressing", "HealthChecksPending"},
		"ManagedResource: no condition yet":            {managed, conditions(now, applied), "Progressing", "ResourcesHealthy yet"},
		"ManagedResource: progresses since 4 minutes":  {managed, conditions(now, applied, fine, "{type: ResourcesProgressing, status: 'True', lastTransitionTime: '2026-03-01T02:56:00Z'}"), "True", ""},
		"ManagedResource: progresses since 5 minutes":  {managed, conditions(now, applied, fine, "{type: ResourcesProgressing, status: 'True', lastTransitionTime: '2026-03-01T02:55:00Z', reason: Rolling, message: rolls}"), "False", "progress since 2026-03-01T02:55:00Z, longer than 5m0s (Rolling): rolls"},
		"ManagedResource: doesn't progress since long": {managed, conditions(now, applied, fine, "{type: ResourcesProgressing, status: 'False', lastTransitionTime: '2026-01-01T00:00:00Z'}"), "True", ""},
		"a kind without a check":                       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\n", "", "Unknown", "there is no built-in check for ConfigMap"},
	} {
		t.Run(name, func(t *testing.T) {
			r := health.Builtin(object(t, tt.kind+tt.status), 5*time.Minute, start)
			if says := r.Detail + r.Note; r.Status != tt.want || !strings.Contains(says, tt.detail) || r.Status == health.True && r.Detail != "" {
				t.Errorf("%s %q, want %s %q", r.Status, says, tt.want, tt.detail)
			}
			if (r.Status == "Progressing") && r.Timeout != 5*time.Minute {
				t.Errorf("believed for %s", r.Timeout)
			}
			if kept := health.Builtin(pruned(t, tt.kind+tt.status), 5*time.Minute, start); !equality.Semantic.DeepEqual(kept, r) {
				t.Errorf("of what is kept of an object it says %+v", kept)
			}
		})
	}
}

// TestWhatStartsIsProgressing: what may be so while it starts is Progressing for as long as that is believed, and False from then on.
func TestWhatStartsIsProgressing(t *testing.T) {
	const now = "observedGeneration: 2, "
	for name, tt := range map[string]struct {
		kind, status string
		young        health.Status
	}{
		"Deployment":                      {deployment, conditions(now, unavailable), "Progressing"},
		"StatefulSet":                     {statefulSet, "status: {observedGeneration: 2, replicas: 1}", "Progressing"},
		"ReplicaSet":                      {replicaSet, "status: {observedGeneration: 2, replicas: 1}", "Progressing"},
		"DaemonSet":                       {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 4, numberUnavailable: 4}", "Progressing"},
		"DaemonSet, not scheduled":        {daemonSet, "status: {observedGeneration: 2, desiredNumberScheduled: 4}", "Progressing"},
		"Pod":                             {pod, "status: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady}]}", "Progressing"},
		"CRD":                             {definition, conditions("", "{type: NamesAccepted, status: 'True'}", "{type: Established, status: 'False', reason: Installing}"), "Progressing"},
		"ManagedResource":                 {managed, conditions(now, applied, "{type: ResourcesHealthy, status: 'False'}"), "Progressing"},
		"Deployment that can't make pods": {deployment, conditions(now, unavailable, noQuota), "False"},
		"Pod that crashes":                {pod, "status: {phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}}]}", "Progressing"},
		"Pod before its ConfigMap":        {pod, "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError}}}]}", "Progressing"},
		"Pod of an image that is none":    {pod, "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: InvalidImageName}}}]}", "False"},
		"CRD whose names are taken":       {definition, conditions("", "{type: NamesAccepted, status: 'False'}", "{type: Established, status: 'False'}"), "False"},
		"ManagedResource, not applied":    {managed, conditions(now, "{type: ResourcesApplied, status: 'False'}"), "False"},
		"Job":                             {job, "status: {conditions: [{type: Failed, status: 'True'}]}", "False"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, tt.kind+tt.status)
			for age, want := range map[time.Duration]health.Status{0: tt.young, 5*time.Minute - 1: tt.young, 5 * time.Minute: "False"} {
				o.SetCreationTimestamp(metav1.NewTime(start.Add(-5 * time.Minute)))
				if r := health.Builtin(o, 5*time.Minute, start.Add(age-5*time.Minute)); r.Status != want {
					t.Errorf("after %s it is %s %q, not %s", age, r.Status, r.Detail, want)
				}
			}
		})
	}
}

// What is being deleted is so whatever its status says, as kstatus has it.
func TestWhatIsBeingDeletedIsProgressing(t *testing.T) {
	o := object(t, deployment+conditions("observedGeneration: 2, ", available, rolledOut))
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	r := health.Builtin(o, 5*time.Minute, start)
	if by := health.ByStatus(o, 5*time.Minute); r.Status != "Progressing" || by.Status != r.Status || r.Detail != "ns/d: Deployment is being deleted" {
		t.Errorf("%+v, and by its status %+v", r, by)
	}
}

// pruned is what is kept of an object.
func pruned(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := object(t, text)
	registration.Prune(o, sets.New(health.FieldsRead...))
	return o
}

// What kstatus reads of kinds that it knows more of, beyond generation and conditions.
func TestByStatusOfWhatIsKept(t *testing.T) {
	const now = "observedGeneration: 2, "
	for name, c := range map[string]struct {
		text string
		want health.Status
	}{
		"Deployment: all replicas":         {deployment + "spec: {replicas: 2}\nstatus: {" + now + "replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [" + available + ", " + rolledOut + "]}", "True"},
		"Deployment: one is missing":       {deployment + "spec: {replicas: 3}\nstatus: {" + now + "replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: [" + available + ", " + rolledOut + "]}", "Progressing"},
		"StatefulSet: a part of a rollout": {statefulSet + "spec: {replicas: 2, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}}\nstatus: {" + now + "replicas: 2, readyReplicas: 2, currentReplicas: 1, updatedReplicas: 1, currentRevision: a, updateRevision: b}", "True"},
		"StatefulSet: one is missing":      {statefulSet + "spec: {replicas: 2}\nstatus: {" + now + "replicas: 1, readyReplicas: 1, currentReplicas: 1}", "Progressing"},
		"ReplicaSet: one is missing":       {replicaSet + "spec: {replicas: 2}\nstatus: {" + now + "replicas: 1, readyReplicas: 1, availableReplicas: 1, fullyLabeledReplicas: 1}", "Progressing"},
		"Job: all pods":                    {job + "spec: {completions: 2, parallelism: 2}\nstatus: {succeeded: 2, active: 0, startTime: '2026-03-01T02:00:00Z', conditions: [{type: Complete, status: 'True'}]}", "True"},
		"Service: without an address":      {service + "spec: {type: LoadBalancer, clusterIP: ''}", "Progressing"},
		"Service: inside the cluster":      {service + "spec: {type: ClusterIP, clusterIP: 10.0.0.1}", "True"},
	} {
		t.Run(name, func(t *testing.T) {
			r, kept := health.ByStatus(object(t, c.text), time.Minute), health.ByStatus(pruned(t, c.text), time.Minute)
			if r.Status != c.want || !equality.Semantic.DeepEqual(kept, r) {
				t.Errorf("%+v, and of what is kept %+v; want %s", r, kept, c.want)
			}
		})
	}
}

func TestManagedResourceWithoutThreshold(t *testing.T) {
	o := object(t, managed+conditions("observedGeneration: 2, ", applied, fine, "{type: ResourcesProgressing, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z'}"))
	if r := health.Builtin(o, 0, start); r.Status != "True" {
		t.Errorf("%+v", r)
	}
}

func TestWhichKindsHaveACheck(t *testing.T) {
	for kind, want := range map[schema.GroupKind]bool{
		{Group: "apps", Kind: "Deployment"}: true, {Group: "apps", Kind: "DaemonSet"}: true, {Group: "apps", Kind: "StatefulSet"}: true,
		{Group: "apps", Kind: "ReplicaSet"}: true, {Group: "batch", Kind: "Job"}: true, {Kind: "Pod"}: true,
		{Kind: "PersistentVolumeClaim"}: true, {Kind: "Service"}: true,
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true, {Group: "resources.gardener.cloud", Kind: "ManagedResource"}: true,
		{Kind: "Deployment"}: false, {Group: "batch", Kind: "CronJob"}: false, {Kind: "Secret"}: false,
	} {
		if got := health.HasBuiltin(kind); got != want {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

func TestByStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		status string
		want   health.Status
	}{
		"ready":             {conditions("observedGeneration: 3, ", "{type: Ready, status: 'True'}"), "True"},
		"not ready":         {conditions("observedGeneration: 3, ", "{type: Ready, status: 'False', message: trouble}"), "Progressing"},
		"reconciling":       {conditions("observedGeneration: 3, ", "{type: Reconciling, status: 'True'}"), "Progressing"},
		"stalled":           {conditions("observedGeneration: 3, ", "{type: Stalled, status: 'True', message: trouble}"), "False"},
		"its status is old": {"status: {observedGeneration: 2}", "Progressing"},
		"carries nothing":   {"spec: {}", "True"},
		"can't be read":     {"status: {conditions: none}", "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := health.ByStatus(worker(t, tt.status), time.Minute); r.Status != tt.want || r.Status == "Progressing" && r.Timeout != time.Minute {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("being deleted", func(t *testing.T) {
		o := worker(t, "")
		o.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-03-01T03:00:00Z"
		if r := health.ByStatus(o, time.Minute); r.Status != "Progressing" {
			t.Errorf("%+v", r)
		}
	})
}

func TestMissing(t *testing.T) {
	for on, want := range map[health.OnMissing]health.Status{"": "False", "False": "False", "Progressing": "Progressing", "Skip": "True"} {
		r := health.Missing(on, "Deployment", "n/d", time.Minute)
		if r.Status != want || want == "Progressing" && r.Timeout != time.Minute || want == "False" && r.Detail != "Deployment n/d doesn't exist" {
			t.Errorf("onMissing %q: %+v", on, r)
		}
	}
}
