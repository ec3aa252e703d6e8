package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// short are kubectl's short names of Kubernetes' kinds. kubectl asks the API server for
// them; a reader of the record may have no access to it.
var short = map[string]kinds.Name{
	"cm": "configmaps", "cs": "componentstatuses", "ep": "endpoints", "ev": "events", "limits": "limitranges", "ns": "namespaces",
	"no": "nodes", "po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rc": "replicationcontrollers", "sa": "serviceaccounts", "svc": "services",
	"deploy": "deployments.apps", "ds": "daemonsets.apps", "rs": "replicasets.apps", "sts": "statefulsets.apps",
	"cj": "cronjobs.batch", "hpa": "horizontalpodautoscalers.autoscaling", "pdb": "poddisruptionbudgets.policy",
	"ing": "ingresses.networking.k8s.io", "netpol": "networkpolicies.networking.k8s.io", "pc": "priorityclasses.scheduling.k8s.io",
	"sc": "storageclasses.storage.k8s.io", "csr": "certificatesigningrequests.certificates.k8s.io",
	"crd": "customresourcedefinitions.apiextensions.k8s.io",
}

// Kind finds the recorded kind that a word names: "pods", "pod", "Pod", "po",
// "deployments.apps", "deployments.v1.apps". If it names several, the one of the core
// group wins, then the first by name, as with kubectl.
//
// Errors: the record has no such kind; the message has similar names.
func Kind(word string, have []kinds.Kind) (kinds.Kind, error) {
	lower := strings.ToLower(word)
	if full, ok := short[lower]; ok {
		lower = string(full)
	}
	var found []kinds.Kind
	for _, k := range have {
		if slices.Contains(spellings(k), lower) {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return kinds.Kind{}, unknownKind(word, have)
	}
	return slices.MinFunc(found, func(a, b kinds.Kind) int {
		if (a.Name.Group() == "") != (b.Name.Group() == "") {
			if a.Name.Group() == "" {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a.Name), string(b.Name))
	}), nil
}

// spellings are all the ways to write a kind, in lower case.
func spellings(k kinds.Kind) []string {
	singular, group := strings.ToLower(k.Kind), k.Name.Group()
	out := []string{string(k.Name), k.Name.Resource(), singular}
	if group != "" {
		out = append(out, singular+"."+group, k.Name.Resource()+"."+k.Version+"."+group)
	}
	return out
}

func unknownKind(word string, have []kinds.Kind) error {
	if len(have) == 0 {
		return fmt.Errorf("the record has no kind %q, and no other yet: the watcher has not recorded anything", word)
	}
	if slices.Contains([]string{"ev", "event", "events"}, strings.ToLower(word)) {
		return errors.New("Kubernetes Events are not recorded: millrace history -n NAMESPACE shows what happened, and kubectl events what was reported")
	}
	full, known := short[strings.ToLower(word)]
	if known {
		return fmt.Errorf("the record has no kind %q (%s): the services record it with --kinds", word, full)
	}
	near := Near(word, plainSpellings(have))
	if strings.Contains(word, ".") {
		near = Near(word, namesOf(have))
	}
	meant := cmp.Or(Meant(near), ";")
	return fmt.Errorf("the record has no kind %q%s millrace retention lists all %d", word, meant, len(have))
}

// plainSpellings are the usual ways to write kinds, the plural first.
func plainSpellings(have []kinds.Kind) (names []string) {
	for _, k := range have {
		names = append(names, k.Name.Resource())
	}
	for s, full := range short {
		if slices.ContainsFunc(have, func(k kinds.Kind) bool { return k.Name == full }) {
			names = append(names, s)
		}
	}
	return names
}

func namesOf(have []kinds.Kind) []string {
	names := make([]string, len(have))
	for i, k := range have {
		names[i] = string(k.Name)
	}
	return names
}

// Completions are the words that a shell offers for kinds, with their descriptions: the short name
// if there is one, and the plural.
func Completions(have []kinds.Kind) []string {
	var out []string
	for _, k := range have {
		word := string(k.Name)
		for s, full := range short {
			if full == k.Name {
				word = s
			}
		}
		out = append(out, word+"\t"+k.Kind, k.Name.Resource()+"\t"+k.APIVersion())
	}
	slices.Sort(out)
	return slices.Compact(out)
}
