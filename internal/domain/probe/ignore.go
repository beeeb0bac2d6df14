package probe

import (
	"strconv"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// WatchdogIgnores is the annotation by which people keep dependency-watchdog from scaling an object.
const WatchdogIgnores = "dependency-watchdog.gardener.cloud/ignore-scaling"

// Ignored says whether annotations ask to leave an object's replicas alone: ours or dependency-watchdog's, with
// any of the words for true that this takes.
func Ignored(annotations map[string]string) bool {
	for _, key := range []string{v1alpha1.AnnotationIgnoreScaling, WatchdogIgnores} {
		if ignore, err := strconv.ParseBool(annotations[key]); err == nil && ignore {
			return true
		}
	}
	return false
}
