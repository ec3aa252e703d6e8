package plan

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// The bounds of a turn. No controller decides more at once, and the API server takes no larger
// body.
const (
	// MaxCommands is how many commands a turn may have.
	MaxCommands = 10_000
	// MaxBody is how many bytes the body of a command may have.
	// Upstream: apiserver/pkg/server, MaxRequestBodyBytes.
	MaxBody = 3 << 20
	// maxNotice is how many bytes the message of a notice may have.
	maxNotice = 16 << 10
)

// Check returns the fault of a turn as a whole, which its decoder cannot see. No honest reconciler
// stores such a turn. owns is the kind of the objects that the controller's keys name; empty if
// they name none.
//
// Errors: the fault.
func Check(t events.Turn, owns kinds.Name) error {
	switch {
	case t.Lane != events.LaneWrite && t.Lane != events.LaneStatus:
		return fmt.Errorf("there is no lane %.20q for commands", t.Lane)
	case len(t.Commands) > MaxCommands:
		return fmt.Errorf("the turn has %d commands, and %d are the most", len(t.Commands), MaxCommands)
	case (t.Kind == "") != (t.UID == ""):
		return fmt.Errorf("the turn names the kind or the uid of its object, and not both")
	case owns != "" && t.Key.Kind == "" && t.Kind != "" && t.Kind != owns:
		return fmt.Errorf("the turn is about one of %.60q, and the controller's keys are %s", t.Kind, owns)
	case t.Key.Kind != "" && t.Kind != "" && t.Kind != t.Key.Kind:
		return fmt.Errorf("the turn is about one of %.60q, and its key about one of %.60q", t.Kind, t.Key.Kind)
	}
	for i, shape := range t.Shapes {
		if len(shape) > MaxBody {
			return fmt.Errorf("shape %d has %d bytes, and %d are the most", i+1, len(shape), MaxBody)
		}
	}
	for i, n := range t.Notices {
		if err := checkNotice(n); err != nil {
			return fmt.Errorf("notice %d: %w", i+1, err)
		}
	}
	for i, c := range t.Commands {
		if err := checkCommand(t, c); err != nil {
			return fmt.Errorf("command %d: %w", i, err)
		}
	}
	return nil
}

func checkCommand(t events.Turn, c events.Command) error {
	switch {
	case c.Lane() != t.Lane:
		return fmt.Errorf("it belongs to lane %s, and the turn to lane %s", c.Lane(), t.Lane)
	case len(c.Body) > MaxBody:
		return fmt.Errorf("its body has %d bytes, and %d are the most", len(c.Body), MaxBody)
	case c.Shape < 0 || c.Shape > len(t.Shapes):
		return fmt.Errorf("its shape is the %d. of %d", c.Shape, len(t.Shapes))
	case c.Shape > 0 && len(c.Body) > 0:
		return fmt.Errorf("it has a body and a shape")
	case c.Applied < 0 || c.Applied > len(t.Notices), c.Failed < 0 || c.Failed > len(t.Notices):
		return fmt.Errorf("its notices are the %d. and %d. of %d", c.Applied, c.Failed, len(t.Notices))
	default:
		return nil
	}
}

// checkNotice returns why a notice cannot be a Kubernetes Event.
func checkNotice(n events.Notice) error {
	about := Request{Kind: kinds.Events.Name, Version: kinds.Events.Version, Namespace: n.About.Namespace, Name: n.About.Name}
	switch {
	case about.Fault() != "":
		return fmt.Errorf("it is about no object: %s", about.Fault())
	case n.Type != "Normal" && n.Type != "Warning":
		return fmt.Errorf("its type is %.20q, neither Normal nor Warning", n.Type)
	case len(n.Reason) > 128:
		return fmt.Errorf("its reason has %d bytes, and 128 are the most", len(n.Reason))
	case len(n.Message) > maxNotice:
		return fmt.Errorf("its message has %d bytes, and %d are the most", len(n.Message), maxNotice)
	default:
		return nil
	}
}

// clusterInfo is the only object that may have signatures.
var clusterInfo = events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: metav1.NamespacePublic, Name: query.ClusterInfo}

// patchTypes are the patch types that the API server accepts as JSON.
var patchTypes = map[types.PatchType]bool{
	types.JSONPatchType: true, types.MergePatchType: true, types.StrategicMergePatchType: true, types.ApplyPatchType: true,
}

// propagations are the deletion propagation policies that a command may name.
var propagations = map[metav1.DeletionPropagation]bool{
	"": true, metav1.DeletePropagationBackground: true, metav1.DeletePropagationForeground: true, metav1.DeletePropagationOrphan: true,
}

// questionFault returns what is wrong with an ask; "" if nothing.
func questionFault(c events.Command) string {
	ofSecret := c.Of != nil && c.Of.Kind == kinds.Secrets.Kind.Kind && c.Subresource != query.SubReadings
	switch {
	case c.AsksExpiry() && c.Namespace == metav1.NamespaceSystem:
		return ""
	case c.Subresource == query.SubExpiry:
		return "only of a Secret in kube-system can it be asked when it expires"
	case c.Kind == kinds.Secrets.Name, ofSecret:
		return "the answer would tell the content of a Secret" // readings: of its scale, and it has none
	case c.Subresource == query.SubReadings && c.Of == nil:
		return "the readings are of no object"
	case c.Subresource == query.SubUsers && c.Of == nil && query.UserKinds(c.Kind) == nil:
		return "what needs such an object cannot be found out"
	case c.Of != nil && c.Searches() && c.Subresource != query.SubReadings:
		return "what is searched for is of a kind that is known, and not named as owners are"
	default:
		return ""
	}
}

// VerbOf returns a verb as a metric label. An unknown verb becomes "unknown", since their number
// is not bounded.
func VerbOf(v events.Verb) string {
	switch v {
	case events.VerbCreate, events.VerbUpdate, events.VerbPatch, events.VerbDelete, events.VerbRecord, events.VerbAsk:
		return string(v)
	default:
		return "unknown"
	}
}
