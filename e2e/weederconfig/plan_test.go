package weederconfig

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var _ = Describe("kubectl autohealer", func() {
	It("foretells what the manager then does, live and from a file", func(ctx SpecContext) {
		s := newShop(ctx)
		s.upstream(ctx, "database", 1)
		s.deploy(ctx, "cart", 2, nil)
		s.allow(ctx, "powerless")
		wc := s.weeder("foretold", "database", "cart")
		dir := GinkgoT().TempDir()
		file, facts := filepath.Join(dir, "weeder.yaml"), filepath.Join(dir, "facts.yaml")

		By("refusing what the schema refuses")
		wc.Spec.WatchDuration = "1h"
		writeManifest(file, wc)
		code, output := plugin(ctx, "plan", "-f", file)
		Expect(code).To(Equal(3), output)
		Expect(output).To(ContainSubstring("watchDuration"))

		By("asking the API server for the account's rights")
		wc.Spec.WatchDuration, wc.Spec.ServiceAccountName = "2m", "powerless"
		writeManifest(file, wc)
		const powerless = "ServiceAccount powerless may not delete pods in namespace "
		code, output = plugin(ctx, "plan", "-f", file)
		Expect(code).To(Equal(3), output)
		Expect(output).To(ContainSubstring(powerless + s.namespace))
		code, output = plugin(ctx, "validate", "-f", file, "--live")
		Expect(code).To(Equal(1), output)
		Expect(output).To(And(ContainSubstring(powerless+s.namespace), Not(ContainSubstring("Skipped"))))

		By("telling who would go if the Service recovered now")
		wc.Spec.ServiceAccountName = ""
		writeManifest(file, wc)
		create(ctx, wc)
		Expect(activeWindows(ctx, wc)()).To(BeZero())
		s.down(ctx, "database")
		s.fail(ctx, "cart")
		code, output = plugin(ctx, "plan", "-f", file)
		Expect(code).To(Equal(0), output)
		Expect(output).To(ContainSubstring("database: notReady; no window; of 2 dependents 2 crash-loop; if it recovered now, 2 would be deleted"))
		doomed := s.pods(ctx, "cart")
		for _, pod := range doomed {
			Expect(output).To(ContainSubstring("delete  " + pod.Name + ": container main exited with code 1"))
		}

		By("telling the same from a file")
		code, output = plugin(ctx, "facts", "export")
		Expect(code).To(Equal(0), output)
		Expect(os.WriteFile(facts, []byte(output), 0o600)).To(Succeed())
		_, live := plugin(ctx, "plan", "-f", file, "-o", "json")
		code, offline := plugin(ctx, "plan", "-f", file, "-o", "json", "--facts", facts)
		Expect(code).To(Equal(0), offline)
		Expect(plansOf(offline)).To(Equal(plansOf(live)))

		By("and they go")
		s.up(ctx, "database")
		Eventually(s.uids).WithContext(ctx).WithArguments("cart").Should(
			And(HaveLen(2), Not(ContainElement(doomed[0].UID)), Not(ContainElement(doomed[1].UID))))

		By("telling of the open window, and of who stays")
		wc.Spec.MaxDeletionsPerWatch = ptr.To[int32](2)
		writeManifest(file, wc)
		s.fail(ctx, "cart")
		Eventually(func() string { _, output = plugin(ctx, "plan", "-f", file); return output }).Should(And(
			ContainSubstring("its window is open until"),
			ContainSubstring("maxDeletionsPerWatch 2 is spent since Service database recovered (MaxDeletionsPerWatch)"),
		), "as soon as the status tells of both deletions")
	})
})

func writeManifest(file string, wc *v1alpha1.WeederConfig) {
	GinkgoHelper()
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "WeederConfig",
		"metadata": map[string]any{"namespace": wc.Namespace, "name": wc.Name}, "spec": wc.Spec,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())
}

// plugin runs the kubectl plugin as the admin.
func plugin(ctx context.Context, args ...string) (code int, output string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), append(args, "--kubeconfig="+h.Kubeconfig)...)
	text, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		Expect(err).NotTo(HaveOccurred(), "run `make build`: %s", text)
	}
	return command.ProcessState.ExitCode(), string(text)
}

// plansOf is what a plan says of its policies, whenever its facts were read.
func plansOf(output string) any {
	GinkgoHelper()
	var plan struct{ Plans any }
	Expect(json.Unmarshal([]byte(output), &plan)).To(Succeed(), output)
	return plan.Plans
}
