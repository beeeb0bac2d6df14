package config_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// right is a verb on a resource, in a namespace or the cluster, as the README's table has it.
type right struct{ where, resource, verb string }

// TestTheReadmeListsTheManagersRights: who installs reads the table instead of the roles.
func TestTheReadmeListsTheManagersRights(t *testing.T) {
	told, granted := map[right]bool{}, map[right]bool{}
	for _, row := range readmeRows(t) {
		for _, resource := range strings.Split(row[1], ", ") {
			name, objects, _ := strings.Cut(resource, " ")
			for _, verb := range strings.Split(row[2], ", ") {
				told[right{row[0], strings.TrimSpace(name + " " + strings.ReplaceAll(objects, "`", "")), verb}] = true
			}
		}
	}
	for _, file := range []string{"manager_role.yaml", "manager_role_webhook.yaml", "manager_role_node_leases.yaml", "manager_role_own_namespace.yaml"} {
		for _, r := range rightsOf(t, file) {
			granted[r] = true
		}
	}
	NewWithT(t).Expect(slices.Collect(maps.Keys(told))).To(ConsistOf(slices.Collect(maps.Keys(granted))))
}

// readmeRows are the cells of the table.
func readmeRows(t *testing.T) (rows [][]string) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| where | resource | verbs | for |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		rows = append(rows, regexp.MustCompile(` *\| *`).Split(strings.Trim(line, "| \n"), -1))
	}
	return rows
}

// rightsOf are those of the role in a file.
func rightsOf(t *testing.T, file string) (all []right) {
	text, err := os.ReadFile(filepath.Join("rbac", file))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{} // a ClusterRole has the same rules
	if err := yaml.Unmarshal([]byte(strings.Split(string(text), "\n---\n")[0]), role); err != nil {
		t.Fatal(err)
	}
	where := role.Namespace
	if where == "" {
		where = "cluster"
	}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, right{where, strings.TrimSpace(fmt.Sprint(resource, " ", strings.Join(rule.ResourceNames, " "))), verb})
			}
		}
	}
	return all
}
