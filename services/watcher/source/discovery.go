package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// aggregated requests all groups in one document.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Catalog is the result of a discovery. It must not be changed.
type Catalog struct {
	// Kinds are the kinds that can be deleted, listed and watched: sorted by name, in the group's
	// preferred version and in metadata form.
	Kinds []kinds.Kind
	// Silent are the groups of which the API server has no up-to-date document. The caller must
	// keep what it knows of them.
	Silent map[string]bool

	versions map[kinds.Name][]string
}

// Serves reports whether the API server serves a kind in a version.
func (c Catalog) Serves(kind kinds.Name, version string) bool {
	return slices.Contains(c.versions[kind], version)
}

// document is one of the two discovery documents that together list all groups, and its last
// contents.
type document struct {
	path   string
	tag    string
	groups []apidiscovery.APIGroupDiscovery
}

// Discover asks which kinds there are. fresh is false when nothing has changed since the last call,
// which costs next to nothing.
//
// Errors: the API server is unreachable or refuses. If only some group does not answer, that is no
// error.
func (s *Source) Discover(ctx context.Context) (catalog Catalog, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.documents {
		changed, err := s.look(ctx, &s.documents[i])
		if err != nil {
			return s.catalog, false, fmt.Errorf("discover kinds: %w", err)
		}
		fresh = fresh || changed
	}
	if fresh {
		s.catalog = catalogOf(slices.Concat(s.documents[0].groups, s.documents[1].groups))
	}
	return s.catalog, fresh, nil
}

// Reach requests a document that every client with valid credentials may read.
func (s *Source) Reach(ctx context.Context) error {
	_, _, err := s.get(ctx, "api", "")
	return err
}

// look brings a document up to date.
func (s *Source) look(ctx context.Context, d *document) (changed bool, err error) {
	body, header, err := s.get(ctx, d.path, d.tag)
	if err != nil || body == nil {
		return false, err
	}
	kind := header.Get("Content-Type")
	if _, params, err := mime.ParseMediaType(kind); err != nil || params["as"] != "APIGroupDiscoveryList" {
		return false, fmt.Errorf("read /%s: %q is no aggregated discovery, which Kubernetes has had since 1.30", d.path, kind)
	}
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return false, fmt.Errorf("read /%s: %w", d.path, err)
	}
	d.tag, d.groups = header.Get("ETag"), list.Items
	return true, nil
}

// get reads a document; body is nil when the document still has that tag.
func (s *Source) get(ctx context.Context, path, tag string) (body []byte, header http.Header, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", aggregated)
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read /%s: %w", path, err)
	case response.StatusCode == http.StatusNotModified:
		return nil, nil, nil
	case response.StatusCode != http.StatusOK:
		wait, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return nil, nil, apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "/"+path, string(body), wait, true)
	}
	return body, response.Header, nil
}

// catalogOf takes each resource in the first version that has it, since groups list their versions
// in the order of preference.
func catalogOf(groups []apidiscovery.APIGroupDiscovery) Catalog {
	c := Catalog{Silent: map[string]bool{}, versions: map[kinds.Name][]string{}}
	for _, g := range groups {
		for _, v := range g.Versions {
			if v.Freshness == apidiscovery.DiscoveryFreshnessStale {
				c.Silent[g.Name] = true
			}
			for _, r := range v.Resources {
				if !usable(g.Name, r) {
					continue
				}
				name := kinds.NameOf(g.Name, r.Resource)
				if len(c.versions[name]) == 0 {
					c.Kinds = append(c.Kinds, kinds.Kind{
						Name: name, Version: v.Version, Kind: r.ResponseKind.Kind,
						Namespaced: r.Scope == apidiscovery.ScopeNamespace, Form: kinds.Metadata,
					})
				}
				c.versions[name] = append(c.versions[name], v.Version)
			}
		}
	}
	slices.SortFunc(c.Kinds, func(a, b kinds.Kind) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// usable excludes resources that cannot be watched, and Events: Millrace itself writes many of
// those, and they own nothing.
func usable(group string, r apidiscovery.APIResourceDiscovery) bool {
	if r.ResponseKind == nil || (r.Resource == "events" && (group == "" || group == "events.k8s.io")) {
		return false
	}
	for _, verb := range []string{"delete", "list", "watch"} {
		if !slices.Contains(r.Verbs, verb) {
			return false
		}
	}
	return true
}
