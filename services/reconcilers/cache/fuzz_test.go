package cache

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// FuzzFold: no message keeps a memory from folding the next ones, and a History has the same
// objects as a memory.
func FuzzFold(f *testing.F) {
	for _, m := range []events.Message{
		delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 3), 1), delta(kinds.Pods.Kind, events.Gone, aPod("p", "", 3), 1), markAt(kinds.Pods.Kind, "7", 1),
	} {
		header, err := json.Marshal(m.Header)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.Subject, header, m.Data)
	}
	// The owners of this object can be decoded, and nothing behind its metadata.
	f.Add("ev.pods.0.default.p", []byte(`{"Millrace-Op":["is"],"Kube-Uid":["u"],"Kube-Rv":["3"],"Millrace-Form":["full"],"Content-Type":["application/vnd.kubernetes.protobuf"]}`),
		[]byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x04\x12\x02\xff\xff"))
	honest := delta(kinds.Pods.Kind, events.Is, aPod("honest", "web", 9), 2)
	f.Fuzz(func(t *testing.T, at string, header, body []byte) {
		ref, err := subject.ParseDelta(at)
		if err != nil {
			ref.Kind = kinds.Pods.Name
		}
		kind, known := kinds.Lookup(ref.Kind)
		m := events.Message{Subject: at, Data: body, Sequence: 1}
		if !known || json.Unmarshal(header, &m.Header) != nil {
			return
		}
		memory, back := New(), NewHistory(0)
		memory.Follow(kinds.Pods.Kind)
		memory.Follow(kind)
		back.Begin(kinds.Pods.Kind, 0, nil, true)
		if kind.Name != kinds.Pods.Name {
			back.Begin(kind, 0, nil, true)
		}
		log := []events.Message{m}
		if kind.Name == kinds.Pods.Name {
			log = append(log, honest)
		}
		if position := memory.Fold(kind.Name, log); position != log[len(log)-1].Sequence {
			t.Errorf("the memory is at %d", position)
		}
		facts := make([]Fact, 0, len(log))
		for _, m := range log {
			facts = append(facts, Read(kind, m))
		}
		back.Fold(kind.Name, facts)
		then, err := back.ViewAt(events.Position{kind.Name: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		now := Snapshot{cache: memory, reader: back.reader}
		var held, seen []string
		for _, o := range now.List(kind.Name, "") {
			held = append(held, o.GetNamespace()+"/"+o.GetName())
		}
		for _, o := range then.List(kind.Name, "") {
			seen = append(seen, o.GetNamespace()+"/"+o.GetName())
		}
		if !slices.Equal(held, seen) {
			t.Errorf("the cache holds %q, and the history has %q", held, seen)
		}
		if _, there := now.Get(kinds.Pods.Name, "default", "honest"); !there && len(log) > 1 && (ref.Name != "honest" || ref.Namespace != "default") && then.Digest == 0 {
			t.Errorf("the message after the invalid one is not held: %q", held)
		}
	})
}
