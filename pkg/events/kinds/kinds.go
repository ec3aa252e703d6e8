// Package kinds names the kinds of objects that Millrace knows, and decodes
// their bodies. A [Name] is enough to find a stream; a [Kind] is enough to make
// a request; an [Of] also knows the Go type.
package kinds

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Name is a resource with its group, as kubectl writes it: "pods", "deployments.apps". It
// identifies a kind on the bus; the API version only says how its objects are encoded.
type Name string

// NameOf builds the name of a resource in a group; group "" is the core group.
func NameOf(group, resource string) Name {
	if group == "" {
		return Name(resource)
	}
	return Name(resource + "." + group)
}

// Resource is the plural resource: "deployments".
func (n Name) Resource() string {
	resource, _, _ := strings.Cut(string(n), ".")
	return resource
}

// Group is the API group, empty for the core group.
func (n Name) Group() string {
	_, group, _ := strings.Cut(string(n), ".")
	return group
}

// Token is the name as one token of a subject or a stream name:
// "deployments_apps". Neither resources nor groups contain an underscore, so
// [ParseToken] gives the name back.
func (n Name) Token() string { return strings.ReplaceAll(string(n), ".", "_") }

// ParseToken is the inverse of [Name.Token].
func ParseToken(token string) Name { return Name(strings.ReplaceAll(token, "_", ".")) }

// Form says which part of an object is on the bus.
type Form string

const (
	// Full objects have everything except managedFields.
	Full Form = "full"
	// Metadata objects have only TypeMeta and ObjectMeta, and decode to
	// *metav1.PartialObjectMetadata.
	Metadata Form = "metadata"
)

// Kind describes one kind of object: its name on the bus, the version in which
// its objects are read, and how requests for it are addressed.
type Kind struct {
	Name       Name   `json:"name"`
	Version    string `json:"version"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced,omitempty"`
	Form       Form   `json:"form,omitempty"`
}

// GVR is the resource as client libraries address it.
func (k Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Name.Group(), Version: k.Version, Resource: k.Name.Resource()}
}

// GVK is the kind as manifests and owner references write it.
func (k Kind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Name.Group(), Version: k.Version, Kind: k.Kind}
}

// APIVersion is "group/version", or "version" for the core group.
func (k Kind) APIVersion() string { return k.GVK().GroupVersion().String() }

func (k Kind) String() string { return fmt.Sprintf("%s/%s", k.Name, k.Version) }

// Of is a kind whose objects have the Go type T (a pointer, as in client-go).
type Of[T metav1.Object] struct{ Kind }
