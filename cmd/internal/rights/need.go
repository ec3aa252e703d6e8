package rights

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Need is one thing that a writer does as a controller.
type Need struct {
	// Identity is the controller's service account in kube-system.
	Identity string
	// Verb is RBAC's.
	Verb string
	// Group and Resource are as RBAC has them: the resource may be "pods/status", "*/scale"
	// or "*", which with group "*" is every kind.
	Group, Resource string
	// Path is a URL that is no resource; Group and Resource are empty then.
	Path string
}

// Any is every group, and every resource.
const Any = "*"

//go:embed upstream.yaml
var upstream []byte

// tokens is the identity that Kubernetes has no role for: kube-controller-manager makes
// tokens as itself.
const tokens = "tokens-controller"

// tokenRules are the role of that identity, which is ours.
var tokenRules = []rbacv1.PolicyRule{
	// It looks at what a token lacks, fills it in, and proves that it is one.
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"delete", "get", "patch"}},
	// It looks whether an account is gone, and takes tokens that are gone off its list.
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "patch"}},
}

// roles are what Kubernetes lets each identity do.
func roles() (map[string][]rbacv1.PolicyRule, error) {
	all := map[string][]rbacv1.PolicyRule{}
	if err := yaml.UnmarshalStrict(upstream, &all); err != nil {
		return nil, fmt.Errorf("read the controllers' own roles: %w", err)
	}
	all[tokens] = tokenRules
	return all, nil
}

// absent are the kinds of the owners whose absence controllers have the writer prove, where
// they do not write that kind.
var absent = map[string][]kinds.Name{
	"pod-garbage-collector-controller": {kinds.Nodes.Name},
	"serviceaccount-token-controller":  {kinds.ServiceAccounts.Name},
}

// Needs are what a writer does for controllers, sorted, as far as Kubernetes' own roles let
// them: the writes that they promise, the looks before and after those, and what they ask.
func Needs(chosen []reconcile.Any) ([]Need, error) {
	own, err := roles()
	if err != nil {
		return nil, err
	}
	needs := map[Need]bool{}
	for _, c := range chosen {
		d := c.Describe()
		role, known := own[d.Identity]
		if !known {
			return nil, fmt.Errorf("cut the rights of %s: Kubernetes has no role for %s", d.Name, d.Identity)
		}
		f := finding{identity: d.Identity, role: role, needs: needs}
		f.add("create", "", "events")
		f.add("patch", "", "events")
		for _, w := range d.Writes {
			f.write(w)
		}
		if adopts(d) {
			f.look(d.Owns.Name.Group(), d.Owns.Name.Resource())
		}
		for _, kind := range absent[d.Name] {
			f.look(kind.Group(), kind.Resource())
		}
	}
	return slices.SortedFunc(maps.Keys(needs), compare), nil
}

// adopts tells whether a controller patches what it owns: the writer looks whether the
// owner is alive.
func adopts(d reconcile.Description) bool {
	return d.Owns != nil && slices.ContainsFunc(d.Writes, func(w reconcile.Write) bool {
		return w.Verb == events.VerbPatch && !w.Any && w.Kind != d.Owns.Name
	})
}

func compare(a, b Need) int {
	return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Group, b.Group),
		cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
}

// finding collects the needs of one controller.
type finding struct {
	identity string
	role     []rbacv1.PolicyRule
	needs    map[Need]bool
}

// add takes a need, unless the controller itself may not do it. It tells whether it did. names
// are those of the only objects that it is about; none where it is about any.
func (f finding) add(verb, group, resource string, names ...string) bool {
	n := Need{Identity: f.identity, Verb: verb, Group: group, Resource: resource}
	may := slices.ContainsFunc(f.role, func(r rbacv1.PolicyRule) bool {
		other := func(name string) bool { return !slices.Contains(r.ResourceNames, name) }
		return (len(r.ResourceNames) == 0 || len(names) > 0 && !slices.ContainsFunc(names, other)) && covers(r, n)
	})
	if may {
		f.needs[n] = true
	}
	return may
}

// look reads an object by get, or as the only one of a list where the role has no get.
func (f finding) look(group, resource string) {
	if !f.add("get", group, resource) {
		f.add("list", group, resource)
	}
}

func (f finding) write(w reconcile.Write) {
	group, resource := w.Kind.Group(), w.Kind.Resource()
	if w.Any {
		group, resource = Any, Any
	}
	switch sub := w.Subresource; {
	case w.Verb == events.VerbAsk:
		f.ask(group, resource, sub)
	case sub == "scale": // it is read again where the answer was lost
		f.add("get", group, resource+"/scale")
		f.add(string(w.Verb), group, resource+"/scale")
	case sub == events.SubToken:
		f.look(group, resource)
		f.add(string(w.Verb), group, resource)
	case sub == events.SubSignatures:
		f.look(group, resource)
		f.add("update", group, resource, w.Named...)
		f.add("list", kinds.Secrets.Name.Group(), kinds.Secrets.Name.Resource())
	case sub == events.SubCertificate: // whether as a signer the API server asks of the controller itself
		f.look(group, resource)
		f.add("update", group, resource+"/status")
	default:
		f.look(group, resource)
		f.add(string(w.Verb), group, strings.TrimSuffix(resource+"/"+sub, "/"))
	}
	if w.Unused {
		f.users(w.Kind)
	}
	if w.Unshared {
		f.add("list", group, resource)
	}
	if w.Verb == events.VerbCreate { // what may have been made before is looked for in three ways
		f.add("list", group, resource)
		f.add("watch", group, resource)
	}
}

// ask is what it takes to answer a question.
func (f finding) ask(group, resource, sub string) {
	switch sub {
	case events.SubContents:
		f.look(group, resource)
		f.add("list", Any, Any)
	case events.SubUsers:
		f.look(group, resource)
		f.users(kinds.NameOf(group, resource))
	case events.SubExpiry:
		f.look(group, resource)
		f.add("list", group, resource)
	case events.SubReview:
		f.look(group, resource)
		f.add("create", "authorization.k8s.io", "subjectaccessreviews")
	case events.SubObjects:
		f.look(group, resource)
		f.add("list", Any, Any)
	case events.SubReadings:
		f.add("get", Any, "*/scale")
		f.add("list", "metrics.k8s.io", "pods")
		f.add("get", "custom.metrics.k8s.io", Any)
		f.add("list", "external.metrics.k8s.io", Any)
		f.needs[Need{Identity: f.identity, Verb: "get", Path: "/apis/custom.metrics.k8s.io"}] = true
	case events.SubTypes, "":
		f.look(group, resource)
	default:
		f.add("get", group, resource+"/"+sub)
	}
}

// users lists what may need an object of a kind.
func (f finding) users(of kinds.Name) {
	for _, kind := range events.UserKinds(of) {
		f.add("list", kind.Group(), kind.Resource())
	}
}

// Covers tells whether a rule allows what is needed, with the object of a name; "" is any
// object.
func Covers(r rbacv1.PolicyRule, n Need, name string) bool {
	named := name != "" && slices.Contains(r.ResourceNames, name)
	return (len(r.ResourceNames) == 0 || named) && covers(r, n)
}

// covers tells whether a rule allows what is needed.
func covers(r rbacv1.PolicyRule, n Need) bool {
	if n.Path != "" {
		return slices.Contains(r.NonResourceURLs, n.Path) && slices.Contains(r.Verbs, n.Verb)
	}
	has := func(list []string, one string) bool { return slices.Contains(list, Any) || slices.Contains(list, one) }
	_, sub, nested := strings.Cut(n.Resource, "/")
	return has(r.Verbs, n.Verb) && has(r.APIGroups, n.Group) &&
		(has(r.Resources, n.Resource) || nested && slices.Contains(r.Resources, "*/"+sub))
}
