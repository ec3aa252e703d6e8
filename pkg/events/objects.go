package events

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubObjects is the subresource of an ask for the objects of a resource. The API server has
// none of that name: the writer finds out how the resource is served, and lists a page of it,
// live. The answer is [Objects], the body of the command an [ObjectsQuestion]. It is asked
// when everything that stands before it in its turn has been done.
const SubObjects = "objects"

// ObjectsQuestion is what is asked.
type ObjectsQuestion struct {
	// Resource is which.
	Resource kinds.Name `json:"resource"`
	// Version is a resourceVersion: objects that have changed since are left out. Without
	// one none are named, and the answer tells where the list stands.
	Version string `json:"version,omitempty"`
	// From is where the page before ended; empty for the first.
	From string `json:"from,omitempty"`
	// Last says that nothing is asked but what became of the commands before.
	Last bool `json:"last,omitempty"`
}

// Objects is how a resource is served, and what there is of it. The object that the ask is
// about was looked at afterwards, and had the uid that the ask insists on.
type Objects struct {
	// Version and Kind are those that discovery prefers; empty where the resource is not served.
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Lacking are verbs of the question's purpose that the resource does not have.
	Lacking []string `json:"lacking,omitempty"`
	// At is the resourceVersion of the list.
	At string `json:"at,omitempty"`
	// Objects are those of the page; More is where it ended, empty for the last one.
	Objects []Stored `json:"objects,omitempty"`
	More    string   `json:"more,omitempty"`
}

// Stored names an object and its version.
type Stored struct {
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

// Rewritten are the verbs that a resource must have for its objects to be read and written
// again.
//
// Upstream: pkg/controller/storageversionmigrator, verbsRequiredForMigration.
var Rewritten = []string{"update", "patch", "list"}
