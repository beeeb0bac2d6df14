package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// run runs the plugin in testdata, at noon, without a cluster.
func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	config, kubeconfig := genericclioptions.NewConfigFlags(false), filepath.Join(t.TempDir(), "none")
	config.KubeConfig = &kubeconfig
	var out, errOut bytes.Buffer
	app := &App{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut},
		Version:   "v0.1.2",
		Clock:     clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)),
		Config:    config,
	}
	code = Run(t.Context(), app, args)
	return code, out.String(), errOut.String()
}

// weederWithoutNamespace is judged where kubectl would create it.
const weederWithoutNamespace = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: WeederConfig
metadata: {name: mail}
spec: {servicesAndDependantSelectors: {queue: {podSelectors: [{matchLabels: {app: mail}}]}}}
`

// TestGolden shows what the verbs say, word by word, and their exit codes.
func TestGolden(t *testing.T) {
	t.Chdir("testdata")
	for name, c := range map[string]struct {
		args  string
		stdin string
	}{
		"validate-good":              {args: "validate -f manifests/good.yaml"},
		"validate-bad":               {args: "validate -f manifests/bad.yaml"},
		"validate-bad-json":          {args: "validate -f manifests/bad.yaml -o json"},
		"validate-bad-junit":         {args: "validate -f manifests/bad.yaml,manifests/good.yaml -o junit"},
		"validate-bad-github":        {args: "validate -f manifests/bad.yaml -f manifests/good.yaml -o github"},
		"validate-list":              {args: "validate -f manifests/list.json"},
		"validate-fail-on-warning":   {args: "validate -f manifests/warned.yaml --fail-on warning"},
		"validate-junit-warning":     {args: "validate -f manifests/warned.yaml --fail-on warning -o junit"},
		"validate-create":            {args: "validate -f manifests/update.yaml"},
		"validate-update":            {args: "validate -f manifests/update.yaml --old stored"},
		"validate-facts":             {args: "validate -f manifests/plan.yaml --facts facts.yaml"},
		"validate-stdin":             {args: "validate -f -", stdin: "apiVersion: v1\nkind: Pod\n"},
		"plan":                       {args: "plan -f manifests/plan.yaml --facts facts.yaml"},
		"plan-json":                  {args: "plan -f manifests/plan.yaml --facts facts.yaml -o json"},
		"plan-acts":                  {args: "plan -f manifests/plan-one.yaml --facts facts.yaml"},
		"plan-kubectl":               {args: "plan -f manifests/plan-one.yaml --facts nodes.yaml"},
		"plan-kubectl-unknown":       {args: "plan -f manifests/weeder.yaml --facts nodes.yaml"},
		"plan-nodes-unknown":         {args: "plan -f manifests/plan-one.yaml --facts services.yaml"},
		"plan-former-facts":          {args: "plan -f manifests/plan-one.yaml --facts facts-former.yaml"},
		"plan-nothing":               {args: "plan -f manifests/plan-none.yaml --facts facts.yaml"},
		"plan-bad":                   {args: "plan -f manifests/bad.yaml --facts facts.yaml"},
		"plan-weeder":                {args: "plan -f manifests/weeder.yaml --facts facts-weeder.yaml"},
		"plan-weeder-json":           {args: "plan -f manifests/weeder.yaml --facts facts-weeder.yaml -o json"},
		"plan-weeder-namespace":      {args: "plan -f - --facts facts-weeder.yaml --namespace shop", stdin: weederWithoutNamespace},
		"plan-weeder-nothing":        {args: "plan -f manifests/weeder-none.yaml --facts facts-weeder.yaml"},
		"plan-weeder-unknown":        {args: "plan -f manifests/weeder.yaml --facts facts.yaml"},
		"plan-probe":                 {args: "plan -f manifests/probe.yaml --facts facts-probe.yaml"},
		"plan-probe-acts":            {args: "plan -f manifests/probe-acts.yaml --facts facts-probe.yaml"},
		"plan-probe-json":            {args: "plan -f manifests/probe-acts.yaml --facts facts-probe.yaml -o json"},
		"plan-probe-refused":         {args: "plan -f manifests/probe-refused.yaml --facts facts-probe.yaml"},
		"plan-checks":                {args: "plan -f manifests/checks.yaml --facts facts-checks.yaml"},
		"plan-checks-enforced":       {args: "plan -f manifests/checks-enforced.yaml --facts facts-checks.yaml"},
		"plan-checks-json":           {args: "plan -f manifests/checks-enforced.yaml --facts facts-checks.yaml -o json"},
		"plan-checks-unexported":     {args: "plan -f manifests/checks-unexported.yaml --facts facts-checks.yaml"},
		"plan-checks-unknown":        {args: "plan -f manifests/checks.yaml --facts facts.yaml"},
		"plan-probe-unknown":         {args: "plan -f manifests/probe.yaml --facts facts.yaml"},
		"plan-outlier":               {args: "plan -f outlier/policy.yaml --facts outlier/facts.yaml"},
		"plan-outlier-json":          {args: "plan -f outlier/policy.yaml --facts outlier/facts.yaml -o json"},
		"reset-without-a-breaker":    {args: "reset weederconfig/shop"},
		"validate-weeder-facts":      {args: "validate -f manifests/weeder.yaml --facts facts-weeder.yaml"},
		"validate-weeder":            {args: "validate -f manifests/weeder.yaml"},
		"validate-weeder-old-facts":  {args: "validate -f manifests/weeder.yaml --facts facts.yaml"},
		"explain-node":               {args: "explain node/worker-1 node/worker-2 node/worker-3 node/worker-4 --facts explain/facts.yaml"},
		"explain-service":            {args: "explain -n shop svc/database service/payments --facts explain/facts.yaml"},
		"explain-pod":                {args: "explain -n shop pod/shop-7f4b8-9xk2p po/shop-debug pod/web-5d9c-1 --facts explain/facts.yaml"},
		"explain-workloads":          {args: "explain -n shop statefulset.apps/database sts/payments --facts explain/facts.yaml"},
		"explain-scaled":             {args: "explain -n shoot-b deployments.apps/kcm --facts facts-probe.yaml"},
		"explain-nothing":            {args: "explain deployment cart --facts explain/facts.yaml"},
		"explain-node-unknown":       {args: "explain no/nope --facts explain/facts.yaml"},
		"explain-worker":             {args: "explain -n shoot--ill worker/w --facts facts-checks.yaml"},
		"explain-worker-asleep":      {args: "explain -n shoot--asleep workers/w --facts facts-checks.yaml"},
		"explain-worker-new":         {args: "explain -n shoot--new worker/w --facts facts-checks.yaml"},
		"explain-worker-unselected":  {args: "explain -n shoot--other worker/w --facts facts-checks.yaml"},
		"explain-worker-unknown":     {args: "explain -n shoot--nobody worker/w --facts facts-checks.yaml"},
		"explain-kind-unknown":       {args: "explain configmap/a --facts explain/facts.yaml"},
		"history":                    {args: "history -f history/manager.log"},
		"history-of-policy":          {args: "history -f history/manager.log conditionsets.autohealer.resourcestack.com/kubelet --since 1h"},
		"history-of-deployment-json": {args: "history -f - deployment/shop -o json", stdin: "[pod/autohealer-manager-1/manager] " + deletedPod},
		"history-of-conditions":      {args: "history -f history/checks.log"},
		"history-none":               {args: "history -f history/manager.log node/worker-9"},
		"history-without-a-kind":     {args: "history worker-1"},
		"rules-list":                 {args: "rules list --kind conditionset"},
		"rules-explain":              {args: "rules explain conditionset/reserved-taint-key"},
		"rules-explain-plan":         {args: "rules explain conditionset/same-key-other-owner"},
		"hash":                       {args: "hash -f manifests/good.yaml"},
		"hash-exception":             {args: "hash -f manifests/bad.yaml,manifests/good.yaml -o exception"},
		"hash-json":                  {args: "hash -f manifests/warned.yaml -o json"},
		"hash-yaml":                  {args: "hash -f manifests/warned.yaml -o yaml"},
		"rules-list-jsonpath":        {args: "rules list --kind WeederConfig -o jsonpath={.kind}:{.items[*].id}"},
		"hash-bad":                   {args: "hash -f manifests/bad.yaml"},
		"convert":                    {args: "convert -f legacy/seed.yaml"},
		"convert-configmap":          {args: "convert -f legacy/configmap.yaml --to ConditionSet"},
		"convert-duplicates":         {args: "convert -f legacy/duplicates.yaml"},
		"convert-dangerous":          {args: "convert -f legacy/dangerous.yaml"},
		"convert-nothing":            {args: "convert -f manifests/good.yaml"},
		"convert-prober":             {args: "convert --to ProbeConfig -f legacy/prober.yaml"},
		"version-client":             {args: "version --client"},
		"version-client-yaml":        {args: "version --client -o yaml"},
		"version-flag":               {args: "--version"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := run(t, c.stdin, strings.Fields(c.args)...)
			got := fmt.Sprintf("$ kubectl autohealer %s\n%s", c.args, stdout)
			if stderr != "" {
				got += "--- standard error\n" + stderr
			}
			got += fmt.Sprintf("--- exit code %d\n", code)
			golden := filepath.Join("golden", name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("go test -update writes it anew; -want +got\n%s", diff)
			}
		})
	}
}

// deletedPod is a line of a manager's log.
const deletedPod = `{"time":"2026-11-21T11:59:18.713277064Z","level":"INFO","msg":"Deleted a crash-looping pod","logger":"history","act":"752a18e873f4069f","verb":"Delete","reason":"ServiceRecovered","policyKind":"WeederConfig","policyNamespace":"default","policy":"shop","policyUID":"aaa902ff-7ae9-4076-80b2-b63d671dcb59","policyGeneration":1,"ruleSet":"58076f47d690af3c","targetKind":"Pod","targetNamespace":"default","target":"shop-654f6c594-mq47q","targetUID":"44428f8a-a668-4441-a7e0-531015b3135d","service":"database","owner":"Deployment/shop","container":"shop","restarts":1,"exitCode":1,"repeats":0,"trigger":"2026-11-21T11:59:18Z"}
`

// TestFactsAreReadAsPowerShellRedirectsThem, in UTF-16 or with a byte order mark.
func TestFactsAreReadAsPowerShellRedirectsThem(t *testing.T) {
	text, err := os.ReadFile("testdata/facts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wide := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(string(text))) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	plan := func(facts string) (says string) {
		code, out, errOut := run(t, "", "plan", "-f", "testdata/manifests/good.yaml", "--facts", facts)
		return fmt.Sprint(code, out, errOut)
	}
	want := plan("testdata/facts.yaml")
	if strings.HasPrefix(want, "2") {
		t.Fatal(want)
	}
	for name, as := range map[string][]byte{"UTF-16": wide, "UTF-8 with a mark": append([]byte("\xef\xbb\xbf"), text...)} {
		file := filepath.Join(t.TempDir(), "facts.yaml")
		if err := os.WriteFile(file, as, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := plan(file); got != want {
			t.Errorf("%s: got %s\nwant %s", name, got, want)
		}
	}
}

// TestExitCodes: 0 all is well, 1 something was found, 2 it could not be done; 3 a plan is of a policy that would be refused.
func TestExitCodes(t *testing.T) {
	t.Chdir("testdata")
	for args, c := range map[string]struct {
		code   int
		stderr string // a part of it
	}{
		"":                                {code: 0},
		"--help":                          {code: 0},
		"validate --help":                 {code: 0},
		"validate -f manifests/good.yaml": {code: 0},
		"validate -f manifests/good.yaml --fail-on error":                  {code: 0},
		"validate -f manifests/good.yaml --fail-on warning":                {code: 1},
		"validate -f manifests/bad.yaml":                                   {code: 1},
		"validate -f manifests/update.yaml":                                {code: 1},
		"validate -f manifests/update.yaml --old stored":                   {code: 0},
		"validate -R -f .":                                                 {code: 1},
		"validate":                                                         {code: 2, stderr: `required flag(s) "filename" not set`},
		"validate -f":                                                      {code: 2, stderr: "-f"},
		"validate -f none.yaml":                                            {code: 2, stderr: "--filename: read manifests: stat none.yaml"},
		"validate -f golden":                                               {code: 2, stderr: "--filename: read directory golden"},
		"validate -f -":                                                    {code: 2, stderr: "--filename: there is no object in -"},
		"validate -f manifests/good.yaml --old none":                       {code: 0, stderr: "warning: --old: read manifests: stat none"},
		"validate -f manifests/good.yaml --old golden":                     {code: 0, stderr: "warning: --old: read directory golden: there is no file that ends in"},
		"validate -f manifests/good.yaml --facts none":                     {code: 2, stderr: "--facts: "},
		"validate -f manifests/good.yaml --facts manifests/good.yaml":      {code: 2, stderr: "--facts manifests/good.yaml: read facts"},
		"validate -f manifests/good.yaml --facts facts.yaml --live":        {code: 2, stderr: "[facts live]"},
		"validate -f manifests/good.yaml --live":                           {code: 2, stderr: "find the cluster"},
		"validate -f manifests/good.yaml --rules manifests/good.yaml":      {code: 2, stderr: "--rules: manifests/good.yaml:2: want a Guardrail, got a ConditionSet"},
		"validate -f manifests/good.yaml --exceptions manifests/good.yaml": {code: 2, stderr: "--exceptions: manifests/good.yaml:2: want a GuardrailException"},
		"validate -f manifests/good.yaml -o xml":                           {code: 2, stderr: "--output=xml: must be one of json, yaml, github, junit, sarif, go-template"},
		"validate -f manifests/good.yaml --fail-on never":                  {code: 2, stderr: `"--fail-on" flag: must be one of error, warning`},
		"validate -f manifests/good.yaml --frobnicate":                     {code: 2, stderr: "unknown flag: --frobnicate"},
		"validate manifests/good.yaml":                                     {code: 2, stderr: `"manifests/good.yaml": files are named with -f`},
		"plan -f manifests/plan-none.yaml --facts facts.yaml":              {code: 0},
		"plan -f manifests/plan-one.yaml --facts facts.yaml":               {code: 1},
		"plan -f manifests/plan-one.yaml":                                  {code: 2, stderr: "find the cluster"},
		"plan -f manifests/list.json --facts facts.yaml":                   {code: 3},
		"plan -f prober/facts.yaml --facts facts.yaml":                     {code: 2, stderr: "there is no ConditionSet, WeederConfig, ProbeConfig, OutlierPolicy"},
		"version":                              {code: 2, stderr: "find the cluster"},
		"facts":                                {code: 0},
		"facts export":                         {code: 2, stderr: "find the cluster"},
		"rules test":                           {code: 0},
		"rules list --kind Pod":                {code: 2, stderr: "--kind: there are no rules for \"Pod\""},
		"history -f -":                         {code: 2, stderr: "there is nothing in it"},
		"rules explain":                        {code: 2, stderr: "accepts 1 arg(s)"},
		"rules explain reserved-taint":         {code: 2, stderr: "did you mean conditionset/reserved-taint-key?"},
		"rules explain nonsense":               {code: 2, stderr: "see rules list"},
		"hash -f manifests/bad.yaml":           {code: 1},
		"convert -f legacy/seed.yaml":          {code: 0},
		"convert -f legacy/seed.yaml --to Pod": {code: 2, stderr: `"--to" flag: must be one of ConditionSet`},
		"convert -f legacy/duplicates.yaml":    {code: 1, stderr: "nothing was written"},
		"check --wait=2m":                      {code: 2, stderr: `invalid argument "2m" for "--wait" flag`},
		"thaw --timeout=-1s":                   {code: 2, stderr: `invalid argument "-1s" for "--timeout" flag: must be more than 0`},
		"thaw --timeout=0":                     {code: 2, stderr: `invalid argument "0" for "--timeout" flag: must be more than 0`},
		"check --timeout=5m":                   {code: 2, stderr: "--timeout is for --wait"},
		"install":                              {code: 2, stderr: "unknown command \"install\" for \"kubectl autohealer\"\n"},
		"completion bash":                      {code: 0},
		"frobnicate":                           {code: 2, stderr: `unknown command "frobnicate" for "kubectl autohealer"` + "\n"},
		"valdate":                              {code: 2, stderr: `unknown command "valdate" for "kubectl autohealer"; did you mean validate?`},
		"rules lst":                            {code: 2, stderr: `unknown command "lst" for "kubectl autohealer rules"; did you mean list?`},
		"rules explain conditionset/reserved-tant-key": {code: 2, stderr: "did you mean conditionset/reserved-taint-key?"},
	} {
		t.Run(args, func(t *testing.T) {
			code, _, stderr := run(t, "", strings.Fields(args)...)
			if code != c.code || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d; standard error, which should have %q:\n%s", code, c.code, c.stderr, stderr)
			}
		})
	}
}

func TestWhatConvertWritesPassesValidate(t *testing.T) {
	t.Chdir("testdata")
	for _, file := range []string{"legacy/seed.yaml", "legacy/configmap.yaml"} {
		code, converted, stderr := run(t, "", "convert", "-f", file)
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", file, code, stderr)
		}
		if code, stdout, stderr := run(t, converted, "validate", "-f", "-"); code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", file, code, stdout, stderr)
		}
	}
}

// TestSARIF: the output fits the standard's schema, each result names a rule that is described, and a line of the file.
func TestSARIF(t *testing.T) {
	t.Chdir("testdata")
	code, stdout, stderr := run(t, "", "validate", "-f", "manifests/bad.yaml,manifests/good.yaml", "-o", "sarif")
	if code != 1 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	strict := json.NewDecoder(strings.NewReader(stdout))
	strict.DisallowUnknownFields()
	if err := strict.Decode(sarif.NewReport()); err != nil {
		t.Error(err)
	}
	document, err := sarif.FromString(stdout)
	if err != nil {
		t.Fatal(err)
	}
	// What the library writes of its own when it validates, and the standard doesn't take.
	document.Runs[0].Language, document.Runs[0].NewlineSequences, document.Runs[0].Tool.Driver.Language = "en-US", []string{"\n"}, "en-US"
	if err := document.Validate(); err != nil {
		t.Error(err)
	}
	results := document.Runs[0]
	var got []string
	for _, r := range results.Results {
		rule := results.Tool.Driver.Rules[r.RuleIndex]
		if *rule.ID != *r.RuleID || *rule.ShortDescription.Text == "" || *rule.FullDescription.Text == "" || *rule.Help.Text == "" || !strings.HasPrefix(*rule.HelpURI, "https://") {
			t.Errorf("result %s points at rule %+v", *r.RuleID, rule)
		}
		if len(*rule.ShortDescription.Text) > 1024 {
			t.Errorf("code scanning shows 1024 characters of rule %s", *rule.ID)
		}
		at := r.Locations[0].PhysicalLocation
		got = append(got, fmt.Sprintf("%s:%d %s %s", *at.ArtifactLocation.URI, *at.Region.StartLine, r.Level, *r.RuleID))
	}
	want := []string{
		"manifests/bad.yaml:7 error conditionset/matches-healthy-nodes",
		"manifests/bad.yaml:7 error conditionset/obsolete-condition",
		"manifests/bad.yaml:29 error manifest/duplicate-key",
		"manifests/bad.yaml:35 error schema/unknown-field",
		"manifests/bad.yaml:41 error schema/unknown-field",
		"manifests/bad.yaml:42 error schema/unknown-field",
		"manifests/bad.yaml:53 error schema/value",
		"manifests/bad.yaml:50 error schema/value",
		"manifests/bad.yaml:59 error schema/value",
		"manifests/bad.yaml:64 error schema/value",
		"manifests/bad.yaml:65 error schema/value",
		"manifests/bad.yaml:72 error schema/value",
		"manifests/bad.yaml:75 error manifest/kind",
		"manifests/bad.yaml:78 error manifest/undecodable",
		"manifests/good.yaml:14 warning conditionset/sticky-evicts",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTheProgram: the built program says what the command says, exits with its code, and colors nothing in a pipe.
func TestTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	program := built(t)
	t.Chdir("testdata")
	for args, want := range map[string]int{
		"version --client": 0, "validate -f manifests/good.yaml": 0, "validate -f manifests/bad.yaml": 1, "validate -f manifests/bad.yaml -o nothing": 2,
	} {
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(args)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d instead of %d\n%s%s", args, got, want, &stdout, &stderr)
		}
		if strings.Contains(stdout.String()+stderr.String(), "\x1b") {
			t.Errorf("%s: there are colors in a pipe", args)
		}
		if args == "version --client" && stdout.String() != "Client Version: v9.9.9\n" {
			t.Errorf("version says %q", &stdout)
		}
	}
}

// built is the program.
func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-autohealer")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v9.9.9", "-o", program, "../../cmd/kubectl-autohealer")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return program
}

// TestEveryVerbHelps: each command has a line, and each that does something an example.
func TestEveryVerbHelps(t *testing.T) {
	root := New(&App{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	var walk func(path string)
	walk = func(path string) {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		if cmd.Short == "" || !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%q lacks a description or an example", path)
		}
		for _, sub := range cmd.Commands() {
			walk(strings.TrimSpace(path + " " + sub.Name()))
		}
	}
	walk("")
}

// TestExamplesAreTaken: each line of an example has a verb that there is, with flags and as many arguments as it takes.
func TestExamplesAreTaken(t *testing.T) {
	words := regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`)
	for _, verb := range leaves(New(&App{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})) {
		for line := range strings.Lines(verb.Example) {
			_, ours, found := strings.Cut(line, "kubectl autohealer ")
			if !found {
				continue
			}
			ours, _, _ = strings.Cut(ours, " > ")
			cmd, args, err := New(&App{IOStreams: genericiooptions.NewTestIOStreamsDiscard()}).Find(words.FindAllString(ours, -1))
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil || !cmd.HasParent() {
				t.Errorf("%s: %s: %v", verb.CommandPath(), strings.TrimSpace(line), err)
			}
		}
	}
}

// TestCompletion is what a shell is offered after a command line that ends in a space, or in part of a word.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"validate --fa":            "--facts\t",
		"validate -o ":             "junit\n",
		"rules list -o ":           "yaml\n",
		"validate --fail-on ":      "warning\n",
		"convert --to ":            "WeederConfig\n",
		"status -n ":               ":4\n",
		"check --timeout ":         ":4\n",
		"history ":                 "conditionset/\n",
		"rules list --kind ":       "GuardrailException\n",
		"rules explain ":           "conditionset/reserved-taint-key\n",
		"rules explain some/rule ": ":4\n", // nothing, and no files
	} {
		code, stdout, _ := run(t, "", append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if code != 0 || !strings.Contains("\n"+stdout, "\n"+want) {
			t.Errorf("%q: exit code %d, want %q in\n%s", line, code, want, stdout)
		}
	}
}
