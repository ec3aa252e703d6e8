package resolve

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestNear(t *testing.T) {
	names := []string{"configmaps", "daemonsets", "deployments", "events", "nodes", "pods", "replicasets", "services", "serviceaccounts", "statefulsets"}
	for word, want := range map[string]string{
		"deploymnets": "deployments", "deployement": "deployments", "pod": "pods", "Pods": "pods", "pdos": "pods", "nodse": "nodes", "replica-sets": "replicasets",
		"service": "services serviceaccounts", "sets": "daemonsets replicasets statefulsets", "nonsense": "", "x": "", "": "",
	} {
		if got := strings.Join(Near(word, names), " "); got != want {
			t.Errorf("near %q is %q, want %q", word, got, want)
		}
	}
	if many := Near("set", append(slices.Clone(names), "sets", "seta", "setb")); len(many) > MostNear {
		t.Errorf("%d names are offered: %v", len(many), many)
	}
}

func TestDistance(t *testing.T) {
	for words, want := range map[[2]string]int{
		{"", ""}: 0, {"", "abc"}: 3, {"abc", ""}: 3, {"abc", "abc"}: 0, {"abc", "acb"}: 1, {"abc", "abd"}: 1, {"abc", "ab"}: 1, {"kitten", "sitting"}: 3,
	} {
		if got := distance(words[0], words[1]); got != want {
			t.Errorf("the distance of %q is %d, want %d", words, got, want)
		}
	}
}

// TestAMisspeltKindIsShort: the error suggests similar kinds, and does not list all.
func TestAMisspeltKindIsShort(t *testing.T) {
	have := []kinds.Kind{kinds.ConfigMaps.Kind, kinds.Deployments.Kind, kinds.Pods.Kind, kinds.ReplicaSets.Kind, kinds.ServiceAccounts.Kind}
	for word, want := range map[string]string{
		"deploymnets":      `the record has no kind "deploymnets"; did you mean deployments? millrace retention lists all 5`,
		"deploymets.apps":  `the record has no kind "deploymets.apps"; did you mean deployments.apps? millrace retention lists all 5`,
		"depoly":           `the record has no kind "depoly"; did you mean deploy? millrace retention lists all 5`,
		"replica":          `the record has no kind "replica"; did you mean replicasets? millrace retention lists all 5`,
		"events":           `Kubernetes Events are not recorded: millrace history -n NAMESPACE shows what happened, and kubectl events what was reported`,
		"nonsense":         `the record has no kind "nonsense"; millrace retention lists all 5`,
		"csr":              `the record has no kind "csr" (certificatesigningrequests.certificates.k8s.io): the services record it with --kinds`,
		"persistentvolume": `the record has no kind "persistentvolume"; millrace retention lists all 5`,
	} {
		if _, err := Kind(word, have); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", word, err, want)
		}
	}
}

func TestAMisspeltControllerIsShort(t *testing.T) {
	for word, want := range map[string]string{
		"deployment-controler": `"deployment-controler" is not in the list of known controllers; did you mean deployment-controller?`,
		"replicset":            `"replicset" is not in the list of known controllers; did you mean replicaset?`,
		"nonsense":             `"nonsense" is not in the list of known controllers`,
	} {
		if _, err := Controller(word); err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", word, err, want)
		}
	}
	if e, err := Controller("deployment"); err != nil || e.Name != "deployment-controller" {
		t.Errorf("an alias is %s, %v", e.Name, err)
	}
}
