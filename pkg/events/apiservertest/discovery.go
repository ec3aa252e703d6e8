package apiservertest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resource is a resource that discovery names. Objects can be stored at the paths of any other, too.
type Resource struct {
	Group, Version, Name, Kind string
	Namespaced                 bool
	Verbs                      []string
	// Scale adds the subresource of that name.
	Scale bool
	// Stale leaves the resource out of the aggregated document, and marks its version there as not
	// up to date.
	Stale bool
}

// has reports whether a path is of the resource.
func (r Resource) has(path string) bool {
	p := parse(path)
	return p.group == r.Group && p.version == r.Version && p.resource == r.Name
}

// Serve adds a resource to discovery, or replaces the one of its name.
func (s *Server) Serve(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved = slices.DeleteFunc(s.unserved, r.same)
	s.served = append(slices.DeleteFunc(s.served, r.same), r)
}

// Unserve takes a resource out of discovery. Requests for it are answered with 404 until it is
// served again; its objects stay.
func (s *Server) Unserve(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = slices.DeleteFunc(s.served, r.same)
	s.unserved = append(s.unserved, r)
}

func (r Resource) same(other Resource) bool {
	return r.Group == other.Group && r.Version == other.Version && r.Name == other.Name
}

// kindOf returns the kind of the objects at a place, as discovery names it; "" if it does not.
func (s *Server) kindOf(of place) string {
	for _, r := range s.served {
		if r.Group == of.group && r.Version == of.version && r.Name == of.resource {
			return r.Kind
		}
	}
	return ""
}

const (
	aggregated     = "as=APIGroupDiscoveryList"
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// discover answers the requests for documents that name no object.
func (s *Server) discover(header http.Header, r Request) (code int, body any, is bool) {
	root := r.Path == "/api" || r.Path == "/apis"
	switch {
	case r.Path == "/readyz":
		body = status(http.StatusOK, "", "")
	case root && !s.plain && strings.Contains(r.Header.Get("Accept"), aggregated):
		header.Set("Content-Type", aggregatedType)
		body = s.aggregated(r.Path == "/api")
	case r.Path == "/api":
		body = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case r.Path == "/apis":
		body = s.groups()
	default:
		list := s.resources(strings.TrimPrefix(strings.TrimPrefix(r.Path, "/apis/"), "/api/"))
		return http.StatusOK, list, len(list.APIResources) > 0
	}
	if !root {
		return http.StatusOK, body, true
	}
	text, err := json.Marshal(body)
	if err != nil {
		return http.StatusInternalServerError, nil, true
	}
	sum := fnv.New64a()
	_, _ = sum.Write(text)
	tag := fmt.Sprintf("%q", fmt.Sprint(sum.Sum64()))
	header.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		return http.StatusNotModified, nil, true
	}
	return http.StatusOK, body, true
}

// groups is the list of all groups but the core one.
func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, r := range s.served {
		version := metav1.GroupVersionForDiscovery{GroupVersion: r.Group + "/" + r.Version, Version: r.Version}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group })
		switch {
		case r.Group == "":
		case i < 0:
			list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		case !slices.Contains(list.Groups[i].Versions, version):
			list.Groups[i].Versions = append(list.Groups[i].Versions, version)
		}
	}
	return list
}

// resources is the list of the resources of one version of a group.
func (s *Server) resources(groupVersion string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, r := range s.served {
		if strings.TrimPrefix(r.Group+"/"+r.Version, "/") != groupVersion {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Name, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs})
		if r.Scale {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Name + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: r.Namespaced, Verbs: metav1.Verbs{"get", "update"},
			})
		}
	}
	return list
}

// aggregated is the document of all groups, or of the core group.
func (s *Server) aggregated(core bool) apidiscovery.APIGroupDiscoveryList {
	list := apidiscovery.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
	for _, r := range s.served {
		if core != (r.Group == "") {
			continue
		}
		i := slices.IndexFunc(list.Items, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == r.Group })
		if i < 0 {
			i, list.Items = len(list.Items), append(list.Items, apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: r.Group}})
		}
		group := &list.Items[i]
		j := slices.IndexFunc(group.Versions, func(v apidiscovery.APIVersionDiscovery) bool { return v.Version == r.Version })
		if j < 0 {
			j, group.Versions = len(group.Versions), append(group.Versions, apidiscovery.APIVersionDiscovery{Version: r.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent})
		}
		if version := &group.Versions[j]; r.Stale {
			version.Freshness = apidiscovery.DiscoveryFreshnessStale
		} else {
			version.Resources = append(version.Resources, r.described())
		}
	}
	return list
}

// described is the resource as the aggregated document has it.
func (r Resource) described() apidiscovery.APIResourceDiscovery {
	scope := apidiscovery.ScopeCluster
	if r.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	d := apidiscovery.APIResourceDiscovery{
		Resource: r.Name, Scope: scope, Verbs: r.Verbs, ResponseKind: &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
	}
	if r.Scale {
		d.Subresources = []apidiscovery.APISubresourceDiscovery{{
			Subresource: "scale", Verbs: []string{"get", "update"}, ResponseKind: &metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		}}
	}
	return d
}
