package ask

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// maxLists is how many kinds of a namespace are listed concurrently.
const maxLists = 8

// contents finds out what a namespace holds ([query.Contents]). It reads the namespace last: the
// namespace existed during the lists, so the listed objects were in it, and not in a later one of
// its name.
func (a Answerer) contents(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	var question query.ContentsQuestion
	if len(r.Body) > 0 {
		if err := json.Unmarshal(r.Body, &question); err != nil {
			return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
		}
	}
	found, gone := a.listable()
	if gone != nil {
		return *gone
	}
	at := func(first bool) (some []resource) {
		for _, of := range found.resources {
			if slices.Contains(question.First, of.name()) == first {
				some = append(some, of)
			}
		}
		return some
	}
	if found.list(ctx, c, r, at(true)); len(found.Kinds) > 0 {
		found.Partial = true
	} else {
		found.list(ctx, c, r, at(false))
	}
	if err := ctx.Err(); err != nil {
		return plan.Response{Reason: "Interrupted", Message: context.Cause(ctx).Error()}
	}
	found.Limit(question.After)
	r.Verb, r.Subresource, r.Body = plan.Look, "", nil
	response := c.Read(ctx, r)
	if response.Code == http.StatusOK {
		response.Body, _ = json.Marshal(found.Contents) // it has only fields that encoding/json accepts
	}
	return response
}

// resource is a kind as discovery returns it.
type resource schema.GroupVersionResource

func (r resource) name() kinds.Name { return kinds.NameOf(r.Group, r.Resource) }

// searched is an answer in progress.
type searched struct {
	query.Contents
	resources []resource
	panicked  func(controller string, cause any, stack []byte)

	mu   sync.Mutex
	seen map[types.UID]bool // the uids in Standing
}

// listable returns the namespaced kinds that can be deleted and listed, in their group's preferred
// version. gone is the answer if discovery failed completely.
func (a Answerer) listable() (s *searched, gone *plan.Response) {
	lists, err := a.Discovery.Client.ServerPreferredNamespacedResources()
	if err != nil && len(lists) == 0 {
		answer := apiclient.Refusal(err, 0)
		return nil, &answer
	}
	s = &searched{seen: map[types.UID]bool{}, panicked: a.Panicked}
	if err != nil {
		s.Undiscovered = err.Error()
		var some *discovery.ErrGroupDiscoveryFailed
		if errors.As(err, &some) {
			s.Groups = len(some.Groups)
		}
	}
	usable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete", "list"}}, lists)
	for _, list := range usable {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			s.Unparsed = err.Error()
			continue
		}
		for _, r := range list.APIResources {
			s.resources = append(s.resources, resource(of.WithResource(r.Name)))
		}
	}
	return s, nil
}

// list lists kinds, maxLists at a time.
func (s *searched) list(ctx context.Context, c *apiclient.Client, r plan.Request, of []resource) {
	var under sync.WaitGroup
	turns := make(chan struct{}, maxLists)
	for _, kind := range of {
		turns <- struct{}{}
		under.Go(func() {
			defer func() { <-turns }()
			var items []metav1.PartialObjectMetadata
			failure := "the writer has a fault"
			defer func() { // also after a panic, or the namespace would look empty
				if cause := recover(); cause != nil {
					s.panicked("", cause, debug.Stack())
				}
				s.take(kind, items, failure)
			}()
			items, failure = listAll(ctx, c, plan.Request{
				Command: r.Command, Verb: r.Verb, Kind: kind.name(), Version: kind.Version, Namespace: r.Name,
			})
		})
	}
	under.Wait()
	slices.SortFunc(s.Kinds, func(a, b query.Holding) int { return cmp.Compare(a.Kind, b.Kind) })
}

// listAll lists the metadata of a kind in a namespace. A kind that cannot be listed (404 or 405),
// although its group says so, has nothing to delete.
//
// Upstream: pkg/controller/namespace/deletion, listCollection.
func listAll(ctx context.Context, c *apiclient.Client, r plan.Request) (items []metav1.PartialObjectMetadata, failure string) {
	items, response := c.List(ctx, r)
	switch response.Code {
	case http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed:
		return items, ""
	default:
		return nil, cmp.Or(response.Message, response.Reason, "no answer")
	}
}

// take adds the objects of a kind to the answer.
func (s *searched) take(kind resource, items []metav1.PartialObjectMetadata, failure string) {
	if len(items) == 0 && failure == "" {
		return
	}
	h := query.Holding{Kind: kind.name(), Version: kind.Version, Count: len(items), Failure: failure}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		o := &items[i]
		for _, f := range o.Finalizers {
			if h.Finalizers == nil {
				h.Finalizers = map[string]int{}
			}
			h.Finalizers[f]++
		}
		if o.DeletionTimestamp != nil && o.DeletionGracePeriodSeconds != nil {
			h.Grace = max(h.Grace, *o.DeletionGracePeriodSeconds)
		}
		if stands(o) && !s.seen[o.UID] {
			s.seen[o.UID] = true
			h.Standing = append(h.Standing, query.Standing{Name: o.Name, UID: o.UID})
		}
	}
	s.Kinds = append(s.Kinds, h)
}

// stands reports whether a delete would change an object. An object that waits for its dependents to
// be deleted or orphaned stops waiting when it is deleted in the background.
func stands(o *metav1.PartialObjectMetadata) bool {
	return o.DeletionTimestamp == nil ||
		slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents) || slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}
