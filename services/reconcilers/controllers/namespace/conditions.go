package namespace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// facet is one condition of the deletion: its text when all is well, and its text
// otherwise.
type facet struct {
	about            corev1.NamespaceConditionType
	well, wellReason string
	reason           string
	message          func(View) string // empty when all is well
}

// Upstream: pkg/controller/namespace/deletion/status_condition_utils.go; users and
// their tools read these words.
var facets = []facet{
	{corev1.NamespaceDeletionDiscoveryFailure, "All resources successfully discovered", "ResourcesDiscovered", "DiscoveryFailed", View.undiscovered},
	{corev1.NamespaceDeletionGVParsingFailure, "All legacy kube types successfully parsed", "ParsedGroupVersions", "GroupVersionParsingFailed", View.unparsed},
	{corev1.NamespaceDeletionContentFailure, "All content successfully deleted, may be waiting on finalization", "ContentDeleted", "ContentDeletionFailed", View.failures},
	{corev1.NamespaceContentRemaining, "All content successfully removed", "ContentRemoved", "SomeResourcesRemain", View.remaining},
	{corev1.NamespaceFinalizersRemaining, "All content-preserving finalizers finished", "ContentHasNoFinalizers", "SomeFinalizersRemain", View.finalizers},
}

// conditions are the namespace's conditions as they should be. Those of other
// components stay.
func (v View) conditions(now time.Time) []corev1.NamespaceCondition {
	all := slices.Clone(v.Namespace.Status.Conditions)
	for _, f := range facets {
		said := corev1.NamespaceCondition{
			Type: f.about, Status: corev1.ConditionFalse, Reason: f.wellReason, Message: f.well,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		if message := f.message(v); message != "" {
			said.Status, said.Reason, said.Message = corev1.ConditionTrue, f.reason, message
		}
		at := slices.IndexFunc(all, func(c corev1.NamespaceCondition) bool { return c.Type == f.about })
		if at < 0 {
			all = append(all, said)
			continue
		}
		if all[at].Status == said.Status {
			said.LastTransitionTime = all[at].LastTransitionTime
		}
		all[at] = said
	}
	return all
}

func (v View) undiscovered() string {
	if c := v.Contents; c.Groups > 0 {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %s", c.Groups, c.Undiscovered)
	}
	return v.Contents.Undiscovered
}

func (v View) unparsed() string { return v.Contents.Unparsed }

func (v View) failures() string {
	troubles := v.troubles()
	if len(troubles) == 0 {
		return ""
	}
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(troubles), strings.Join(troubles, ", "))
}

// troubles are the reasons why kinds could not be emptied, one for each: the kind could
// not be listed, an object was not deleted, or an object still exists although nothing
// keeps it.
func (v View) troubles() []string {
	of := map[kinds.Name]string{}
	for _, h := range v.Contents.Kinds {
		switch {
		case h.Failure != "":
			of[h.Kind] = h.Failure
		case h.Count > 0 && len(h.Finalizers) == 0 && h.Grace <= v.since():
			of[h.Kind] = fmt.Sprintf("unexpected items still remain in namespace: %s for gvr: %v", v.Namespace.Name, gvrOf(h))
		}
	}
	standing := v.standing()
	for _, r := range slices.Backward(v.Refused) { // the first refusal counts
		if standing[r.UID] {
			of[r.Kind] = r.Message
		}
	}
	all := make([]string, 0, len(of))
	for _, trouble := range of {
		all = append(all, trouble)
	}
	slices.Sort(all)
	return all
}

func (v View) standing() map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, h := range v.Contents.Kinds {
		for _, o := range h.Standing {
			all[o.UID] = true
		}
	}
	return all
}

func (v View) remaining() string {
	var left []string
	for _, h := range v.Contents.Kinds {
		if h.Count > 0 {
			left = append(left, fmt.Sprintf("%s.%s has %d resource instances", h.Kind.Resource(), h.Kind.Group(), h.Count))
		}
	}
	if len(left) == 0 {
		return ""
	}
	slices.Sort(left)
	return "Some resources are remaining: " + strings.Join(left, ", ")
}

func (v View) finalizers() string {
	count := map[string]int{}
	for _, h := range v.Contents.Kinds {
		for f, n := range h.Finalizers {
			count[f] += n
		}
	}
	if len(count) == 0 {
		return ""
	}
	left := make([]string, 0, len(count))
	for f, n := range count {
		left = append(left, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	slices.Sort(left)
	return "Some content in the namespace has finalizers remaining: " + strings.Join(left, ", ")
}

func gvrOf(h query.Holding) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: h.Kind.Group(), Version: h.Version, Resource: h.Kind.Resource()}
}
