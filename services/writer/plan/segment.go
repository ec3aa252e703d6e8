package plan

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Nameable reports whether an object can have a name: whether the name is a valid path segment. The
// API server accepts no other names.
//
// Upstream: k8s.io/apimachinery/pkg/api/validation/path, IsValidPathSegmentName.
func Nameable(name string) bool { return name != "" && len(path.IsValidPathSegmentName(name)) == 0 }

// Fault returns why the request has no valid path; "" if it has one. Text that a turn or a tenant
// wrote must not lead to another object than the one that it names, so every part must be one path
// segment.
func (r Request) Fault() string {
	if r.Namespace != "" && len(validation.IsDNS1123Label(r.Namespace)) > 0 {
		return "the namespace cannot be one"
	}
	if r.Owner != nil {
		if !Nameable(r.Owner.Name) {
			return "the owner's name cannot be one"
		}
		return subresourceFault(r.Subresource)
	}
	if fault := kindFault(r.Kind, r.Version); fault != "" {
		return fault
	}
	if !Nameable(r.Name) {
		return "the name cannot be one"
	}
	return subresourceFault(r.Subresource)
}

// kindFault returns why the objects of a kind have no valid path.
func kindFault(kind kinds.Name, version string) string {
	_, group, grouped := strings.Cut(string(kind), ".")
	switch {
	case len(validation.IsDNS1035Label(kind.Resource())) > 0:
		return "the resource cannot be one"
	case grouped && len(validation.IsDNS1123Subdomain(group)) > 0:
		return "the API group cannot be one"
	case len(validation.IsDNS1035Label(version)) > 0:
		return "the API version cannot be one"
	default:
		return ""
	}
}

func subresourceFault(subresource string) string {
	if subresource != "" && len(validation.IsDNS1035Label(subresource)) > 0 {
		return "the subresource cannot be one"
	}
	return ""
}

// unaddressable returns why there is no path for a command, or for the object that it relies on.
// It does not check owners: an owner with an invalid name is absent.
func unaddressable(c events.Command) string {
	r := Request{Kind: c.Kind, Version: c.Version, Namespace: c.Namespace, Name: c.Name, Subresource: c.Subresource}
	if c.Of != nil {
		r.Owner = c.Of
		if !Nameable(c.Of.Name) {
			r.Owner, r.Kind, r.Version, r.Name = nil, kinds.Pods.Name, kinds.Pods.Version, "absent" // the rest must hold
		}
	}
	if fault := r.Fault(); fault != "" {
		return fault
	}
	if c.If == nil || c.If.Alive == nil {
		return ""
	}
	a := c.If.Alive
	if fault := (Request{Kind: a.Kind, Version: a.Version, Namespace: a.Namespace, Name: a.Name}).Fault(); fault != "" {
		return "of the object that it relies on, " + fault
	}
	return ""
}
