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
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Need is one right that a writer needs as a controller.
type Need struct {
	// Identity is the controller's service account in kube-system.
	Identity string
	// Verb is the verb of RBAC.
	Verb string
	// Group and Resource are as in RBAC: the resource may be "pods/status", "*/scale"
	// or "*", which with group "*" is every kind.
	Group, Resource string
	// Path is a non-resource URL; Group and Resource are empty then.
	Path string
}

// Any stands for every group and every resource.
const Any = "*"

//go:embed upstream.yaml
var upstream []byte

// tokens is an identity for which Kubernetes has no role, because kube-controller-manager
// creates tokens under its own identity.
const tokens = "tokens-controller"

// tokenRules are the rules of Millrace's role for that identity.
var tokenRules = []rbacv1.PolicyRule{
	// The writer reads a token, fills in what it lacks, and proves its type by a patch.
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"delete", "get", "patch"}},
	// The writer verifies that an account is gone, and removes deleted tokens from its list.
	{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "patch"}},
}

// roles are the rules of each identity in Kubernetes' bootstrap roles.
func roles() (map[string][]rbacv1.PolicyRule, error) {
	all := map[string][]rbacv1.PolicyRule{}
	if err := yaml.UnmarshalStrict(upstream, &all); err != nil {
		return nil, fmt.Errorf("read the controllers' own roles: %w", err)
	}
	all[tokens] = tokenRules
	return all, nil
}

// absent are the kinds of owners whose absence the writer verifies for a controller that
// does not write that kind.
var absent = map[string][]kinds.Name{
	"pod-garbage-collector-controller": {kinds.Nodes.Name},
	"serviceaccount-token-controller":  {kinds.ServiceAccounts.Name},
}

// Needs are the rights that a writer needs for controllers, sorted, as far as Kubernetes' own
// roles have them: for the writes that they promise, the reads before and after these, and the
// command ask.
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

// adopts is whether a controller patches objects that it may own: the writer then verifies that
// the owner exists.
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

// add adds a need if the controller's own role allows it, and reports whether it does. names
// restrict the need to some objects; none: all objects.
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

// look adds the right to get an object, or to list if the role has no get.
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
	case sub == "scale": // the writer reads it again if the response was lost
		f.add("get", group, resource+"/scale")
		f.add(string(w.Verb), group, resource+"/scale")
	case sub == query.SubToken:
		f.look(group, resource)
		f.add(string(w.Verb), group, resource)
	case sub == query.SubSignatures:
		f.look(group, resource)
		f.add("update", group, resource, w.Named...)
		f.add("list", kinds.Secrets.Name.Group(), kinds.Secrets.Name.Resource())
	case sub == query.SubCertificate: // the API server checks the right to sign against the controller's own role
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
	if w.Verb == events.VerbCreate { // the writer looks for an earlier create by get, list and watch
		f.add("list", group, resource)
		f.add("watch", group, resource)
	}
}

// ask adds the rights for a command ask.
func (f finding) ask(group, resource, sub string) {
	switch sub {
	case query.SubContents:
		f.look(group, resource)
		f.add("list", Any, Any)
	case query.SubUsers:
		f.look(group, resource)
		f.users(kinds.NameOf(group, resource))
	case query.SubExpiry:
		f.look(group, resource)
		f.add("list", group, resource)
	case query.SubReview:
		f.look(group, resource)
		f.add("create", "authorization.k8s.io", "subjectaccessreviews")
	case query.SubObjects:
		f.look(group, resource)
		f.add("list", Any, Any)
	case query.SubReadings:
		f.add("get", Any, "*/scale")
		f.add("list", "metrics.k8s.io", "pods")
		f.add("get", "custom.metrics.k8s.io", Any)
		f.add("list", "external.metrics.k8s.io", Any)
		f.needs[Need{Identity: f.identity, Verb: "get", Path: "/apis/custom.metrics.k8s.io"}] = true
	case query.SubTypes, "":
		f.look(group, resource)
	default:
		f.add("get", group, resource+"/"+sub)
	}
}

// users adds the rights to list the objects that may use an object of a kind.
func (f finding) users(of kinds.Name) {
	for _, kind := range query.UserKinds(of) {
		f.add("list", kind.Group(), kind.Resource())
	}
}

// Covers is whether a rule allows a need for the object with a name; "" is any object.
func Covers(r rbacv1.PolicyRule, n Need, name string) bool {
	named := name != "" && slices.Contains(r.ResourceNames, name)
	return (len(r.ResourceNames) == 0 || named) && covers(r, n)
}

// covers is whether a rule allows a need, regardless of object names.
func covers(r rbacv1.PolicyRule, n Need) bool {
	if n.Path != "" {
		return slices.Contains(r.NonResourceURLs, n.Path) && slices.Contains(r.Verbs, n.Verb)
	}
	has := func(list []string, one string) bool { return slices.Contains(list, Any) || slices.Contains(list, one) }
	_, sub, nested := strings.Cut(n.Resource, "/")
	return has(r.Verbs, n.Verb) && has(r.APIGroups, n.Group) &&
		(has(r.Resources, n.Resource) || nested && slices.Contains(r.Resources, "*/"+sub))
}
