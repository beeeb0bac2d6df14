#!/usr/bin/env bash
# Prints the names of all tests, and of the specs of all end-to-end suites, of the checkout that it is run in, sorted: what a change
# loses or renames is seen with
#
#   git worktree add /tmp/before BASE && diff <(cd /tmp/before && PATH_TO/hack/test-names.sh) <(hack/test-names.sh)
#
# A spec's name has its containers'. In which package and file it is doesn't matter. Nothing is run, but both checkouts need
# `make controlplane node envoy`, since some suites look for these first.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git grep -hoE '^func (Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*' -- '*_test.go' | sed 's/^func/test/' >"$work/names"
suites=$(go list -f '{{range .TestImports}}{{if eq . "github.com/onsi/ginkgo/v2"}}{{$.ImportPath}}{{end}}{{end}}' ./e2e/...)
for suite in $suites; do
  rm -f "$work/specs.json"
  go test "$suite" -count=1 -ginkgo.dry-run -ginkgo.json-report="$work/specs.json" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  python3 -c '
import json, sys
for suite in json.load(open(sys.argv[1])):
    for spec in suite["SpecReports"] or []:
        if spec["LeafNodeType"] == "It":
            print("spec", " / ".join((spec["ContainerHierarchyTexts"] or []) + [spec["LeafNodeText"]]))
' "$work/specs.json" >>"$work/names"
done
sort "$work/names"
