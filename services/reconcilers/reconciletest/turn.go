package reconciletest

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// subject is a field of views that may hold the object of a turn. An empty kind means the
// kind that the controller owns.
type subject struct {
	field string
	kind  kinds.Name
}

// subjects are these fields, in order: the first one in a view is the object of its turn.
var subjects = []subject{
	{"deployment", ""}, {"set", ""}, {"job", ""}, {"cronJob", ""}, {"autoscaler", ""}, {"claim", ""}, {"volume", ""}, {"class", ""},
	{"resourceClaim", ""},
	{"policy", ""}, {"quota", ""}, {"secret", ""}, {"storageVersion", ""}, {"role", ""}, {"budget", ""}, {"request", ""}, {"serviceCIDR", ""}, {"group", ""}, {"migration", ""}, {"configMap", ""},
	{"persistentVolume", kinds.PersistentVolumes.Name}, {"trustBundle", ""},
	{"pod", kinds.Pods.Name}, {"stray", kinds.Pods.Name}, {"rule", kinds.DeviceTaintRules.Name}, {"node", kinds.Nodes.Name},
	{"service", kinds.Services.Name}, {"endpoints", kinds.Endpoints.Name}, {"namespace", kinds.Namespaces.Name},
}

// Turn returns the turn, without commands, in which a controller sees a view, and the
// object of the turn, which may be nil.
//
// Errors: the view does not show its object.
func Turn(d reconcile.Description, view json.RawMessage) (t events.Turn, own metav1.Object, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(view, &fields); err != nil {
		return t, nil, fmt.Errorf("read the view: %w", err)
	}
	t.Controller = d.Name
	if object, there := fields["object"]; there {
		return about(t, object)
	}
	if d.Owns == nil {
		return t, nil, nil // its keys are not objects
	}
	for _, s := range subjects {
		text, there := fields[s.field]
		if !there || string(text) == "null" {
			continue
		}
		kind := s.kind
		if kind == "" || kind == d.Owns.Name {
			own, err = ownOf(*d.Owns, text)
		} else if t.Key.Kind = kind; kind == kinds.Services.Name || kind == kinds.Endpoints.Name {
			t.Key.Kind = "" // an object of the same name
		} else if of, known := kinds.Lookup(kind); known {
			own, err = ownOf(of, text)
		}
		var object metav1.PartialObjectMetadata
		var name string
		if json.Unmarshal(text, &name) == nil {
			t.Key.Name, own, err = name, nil, nil
			return t, own, err
		}
		if e := json.Unmarshal(text, &object); e != nil || err != nil {
			return t, nil, fmt.Errorf("read the view's %s: %w", s.field, errors.Join(e, err))
		}
		t.Key.Namespace, t.Key.Name = object.Namespace, object.Name
		if own != nil || t.Key.Kind != "" {
			t.Kind, t.UID, t.ResourceVersion = d.Owns.Name, object.UID, object.ResourceVersion
		}
		if of, known := kinds.Lookup(t.Key.Kind); known {
			t.Kind = of.Name
			own, err = ownOf(of, text)
		}
		return t, own, err
	}
	return elsewhere(t, fields)
}

// about returns the turn of an object of any kind whose metadata the view has.
func about(t events.Turn, text json.RawMessage) (events.Turn, metav1.Object, error) {
	var object struct {
		Kind     kinds.Kind
		Metadata metav1.ObjectMeta
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return t, nil, fmt.Errorf("read the view's object: %w", err)
	}
	meta := &object.Metadata
	t.Key = events.Key{Kind: object.Kind.Name, Namespace: meta.Namespace, Name: meta.Name}
	t.Kind, t.UID, t.ResourceVersion = object.Kind.Name, meta.UID, meta.ResourceVersion
	return t, meta, nil
}

// ownOf decodes the object of a turn from a view.
func ownOf(kind kinds.Kind, text json.RawMessage) (metav1.Object, error) {
	if kind.Name == kinds.Secrets.Name {
		var secret metav1.PartialObjectMetadata
		err := json.Unmarshal(text, &secret)
		return &secret, err
	}
	made, err := kinds.Scheme().New(kind.GVK())
	if err != nil {
		return nil, err
	}
	if kind.Name == kinds.ReplicationControllers.Name {
		made = &appsv1.ReplicaSet{} // its view holds it as a ReplicaSet
	}
	own, ok := made.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", made)
	}
	var name string
	if json.Unmarshal(text, &name) == nil {
		return nil, nil
	}
	return own, json.Unmarshal(text, own)
}

// elsewhere returns the turn of a key that is no object, or whose object was deleted.
func elsewhere(t events.Turn, fields map[string]json.RawMessage) (events.Turn, metav1.Object, error) {
	var lists, slices []metav1.PartialObjectMetadata
	_ = json.Unmarshal(fields["lists"], &lists)
	_ = json.Unmarshal(fields["slices"], &slices)
	switch {
	case fields["zone"] != nil:
		t.Key.Name = "zone"
	case fields["excess"] != nil:
		t.Key.Name = "finished"
	case fields["name"] != nil:
		_ = json.Unmarshal(fields["name"], &t.Key.Name)
	case len(lists) > 0:
		t.Key.Namespace = lists[0].Namespace
		_ = json.Unmarshal(fields["gone"], &t.Key.Name)
	case len(slices) > 0:
		t.Key = events.Key{Namespace: slices[0].Namespace, Name: slices[0].Labels[discoveryv1.LabelServiceName]}
	default:
		return t, nil, errors.New("the view does not say what it is about")
	}
	return t, nil, nil
}

// Promised returns an error if a decision on a view is not within its controller's promise.
func Promised(d reconcile.Description, view json.RawMessage, wanted reconcile.Decision) error {
	if len(wanted.Commands) == 0 {
		return nil
	}
	t, own, err := Turn(d, view)
	if err != nil {
		return err
	}
	fits := d.Fits(t, func() metav1.Object { return own }, Objects(view))
	for _, c := range wanted.Commands {
		if err := fits(c); err != nil {
			return fmt.Errorf("%s of %v (subresource %q) is beyond the promise: %w", c.Verb, c.Ref(), c.Subresource, err)
		}
	}
	return nil
}
