package ecosystem

import (
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// SystemPod is a pod, or a DaemonSet's pods, that a node or its healing can't do without: evict it and the condition
// that led to the eviction freezes, or the node is lost.
type SystemPod struct {
	Namespace, Name string
	// Role is what it does for the node.
	Role        string
	Tolerations []corev1.Toleration
}

func (p SystemPod) String() string { return fmt.Sprintf("%s/%s (%s)", p.Namespace, p.Name, p.Role) }

// LabelReporter marks the pods of a reporter of node conditions that Autohealer doesn't know by itself.
const LabelReporter = "autohealer.resourcestack.com/reporter"

// roleOfPath recognizes a pod that plugs into the kubelet by its host paths.
var roleOfPath = []struct{ prefix, role string }{
	{"/etc/cni", "CNI"}, {"/opt/cni", "CNI"},
	{"/var/lib/kubelet/plugins_registry", "CSI"}, {"/var/lib/kubelet/plugins", "CSI"},
	{"/dev/kmsg", "condition reporter"},
}

// wholeHost are the paths by which a DaemonSet's pods see all of a node, /dev/kmsg included: it is unknown whether they report something.
// Of others' pods they say nothing: those of kubectl debug have them, too.
var wholeHost = []string{"/", "/dev"}

// SystemRole is what a pod does for its node, "" for an ordinary pod.
func SystemRole(meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	switch {
	case meta.Labels[LabelReporter] == "true" || goesBy(meta, "node-problem-detector"):
		return "condition reporter"
	case goesBy(meta, "kube-proxy"):
		return "Service proxy"
	}
	owner := metav1.GetControllerOfNoCopy(meta)
	everywhere := owner != nil && owner.Kind == "DaemonSet"
	for _, v := range spec.Volumes {
		if v.HostPath == nil {
			continue
		}
		at := path.Clean(v.HostPath.Path)
		for _, r := range roleOfPath {
			if at == r.prefix || strings.HasPrefix(at, r.prefix+"/") {
				return r.role
			}
		}
		if everywhere && slices.Contains(wholeHost, at) {
			return "sees the whole host"
		}
	}
	return ""
}

// goesBy says whether a pod's name, or a label that names what it runs, has the text.
func goesBy(meta *metav1.ObjectMeta, text string) bool {
	return strings.Contains(meta.Name, text) || strings.Contains(meta.Labels["app.kubernetes.io/name"]+" "+meta.Labels["app"]+" "+meta.Labels["k8s-app"], text)
}

// SystemPodOf represents the pods of a DaemonSet; is says whether a node can't do without them.
func SystemPodOf(ds *appsv1.DaemonSet) (p SystemPod, is bool) {
	pod := &ds.Spec.Template
	p = SystemPod{Namespace: ds.Namespace, Name: ds.Name, Tolerations: pod.Spec.Tolerations}
	p.Role = SystemRole(&metav1.ObjectMeta{
		Name: ds.Name, Namespace: ds.Namespace, Labels: pod.Labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
	}, &pod.Spec)
	return p, p.Role != ""
}

// Intolerant names the pods that a NoExecute taint of this key would evict, now or after their tolerationSeconds.
func Intolerant(pods []SystemPod, key string) []string {
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
	var names []string
	for _, p := range pods {
		tolerates := slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool {
			return t.TolerationSeconds == nil && t.ToleratesTaint(klog.Background(), &taint, false)
		})
		if !tolerates {
			names = append(names, p.String())
		}
	}
	slices.Sort(names)
	return names
}
