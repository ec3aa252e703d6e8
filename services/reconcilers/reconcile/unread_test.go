package reconcile_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// TestUnreadPathsLeadSomewhere: a path that no object has would promise nothing.
func TestUnreadPathsLeadSomewhere(t *testing.T) {
	for _, path := range reconcile.Containers("env", "envFrom", "args", "command") {
		if _, err := redact.Parse(string(kinds.Pods.Name) + ":" + path.String()); err != nil {
			t.Error(err)
		}
	}
}

// TestReads: a controller must read the whole of an object that it replaces or
// copies.
func TestReads(t *testing.T) {
	env := redact.MustParsePath(".spec.containers[*].env[*].value")
	reader := reconcile.Description{Inputs: []reconcile.Input{reconcile.Own(kinds.Pods.Kind)}}
	if reads, _ := reader.Reads(kinds.Pods.Name, env); reads {
		t.Error("a controller that only reads pods reads their environment")
	}
	if reads, _ := reader.Reads(kinds.Pods.Name, redact.MustParsePath(".spec.containers[*]")); !reads {
		t.Error("a controller that reads pods does not read their containers")
	}
	status := reader
	status.Writes = reconcile.Writes{{Verb: events.VerbUpdate, Kind: kinds.Pods.Name, Subresource: "status"}}
	if reads, _ := status.Reads(kinds.Pods.Name, env); reads {
		t.Error("a controller that replaces the status writes the environment back")
	}
	for name, w := range map[string]reconcile.Write{"pods": {Verb: events.VerbUpdate, Kind: kinds.Pods.Name}, "anything": {Verb: events.VerbUpdate, Any: true}} {
		writer := reader
		writer.Writes = reconcile.Writes{w}
		if reads, _ := writer.Reads(kinds.Pods.Name, env); !reads {
			t.Errorf("a controller that replaces %s does not write the environment back", name)
		}
	}
	bare := reconcile.Description{Inputs: []reconcile.Input{{Kind: kinds.ConfigMaps.Kind, Bare: true}}}
	data := redact.MustParsePath(".data")
	if reads, _ := bare.Reads(kinds.ConfigMaps.Name, data); reads {
		t.Error("a controller that reads ConfigMaps barely reads their data")
	}
	bare.Writes = reconcile.Writes{{Verb: events.VerbUpdate, Kind: kinds.ConfigMaps.Name}}
	if reads, _ := bare.Reads(kinds.ConfigMaps.Name, data); !reads {
		t.Error("a controller that replaces ConfigMaps does not write their data back")
	}
	every := reconcile.Description{Inputs: []reconcile.Input{{Every: true, Kind: kinds.Pods.Kind}}}
	if reads, _ := every.Reads(kinds.Pods.Name, env); reads {
		t.Error("a controller that reads the metadata of every kind reads more")
	}
}
