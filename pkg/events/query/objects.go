package query

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// SubObjects is the subresource of an ask for the objects of a resource. The API server has no
// such subresource: the writer discovers how the resource is served, and lists one page of it,
// live. The answer is [Objects]; the body of the command is an [ObjectsQuestion]. The writer
// asks after all commands before it in the turn have been carried out.
const SubObjects = "objects"

// ObjectsQuestion is the body of a [SubObjects] ask.
type ObjectsQuestion struct {
	// Resource is the resource to list.
	Resource kinds.Name `json:"resource"`
	// Version is a resourceVersion: the answer leaves out objects that have changed since. If it
	// is empty, the answer names no objects and gives only the resourceVersion of the list.
	Version string `json:"version,omitempty"`
	// From is the continue token of the previous page; empty for the first page.
	From string `json:"from,omitempty"`
	// Last requests no list: only the results of the commands before the ask matter.
	Last bool `json:"last,omitempty"`
}

// Objects is how a resource is served, and one page of its objects. Afterwards the writer read
// the object that the ask is about, and it had the uid that the ask requires.
type Objects struct {
	// Version and Kind are those that discovery prefers; empty when the resource is not served.
	Version string `json:"version,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Lacking are the verbs in [Rewritten] that the resource does not support.
	Lacking []string `json:"lacking,omitempty"`
	// At is the resourceVersion of the list.
	At string `json:"at,omitempty"`
	// Objects are the objects of the page; More is the continue token, empty on the last page.
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
