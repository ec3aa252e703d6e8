package record_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The record answers what happened to an object.
func ExampleRecord_History() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		fmt.Println(err)
	}
	log, err := b.Append(ctx, kinds.Pods.Name)
	if err != nil {
		fmt.Println(err)
	}
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "web-1"}
	for _, version := range []string{"41", "42"} {
		m := subject.Message(events.Delta{Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "7d1", ResourceVersion: version, At: time.Now(),
			ContentType: "application/json", Body: []byte(`{"metadata":{"name":"web-1","namespace":"default"}}`)})
		if err := log.Append(ctx, events.Seal(m)); err != nil {
			fmt.Println(err)
		}
	}
	if err := log.Flush(ctx); err != nil {
		fmt.Println(err)
	}
	history, err := record.New(b).History(ctx, kinds.Pods.Kind, ref, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range history.Versions {
		fmt.Println(v.ResourceVersion)
	}
	// Output:
	// 41
	// 42
}

// A moment is a time, or how long ago it was.
func ExampleParseMoment() {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at, err := record.ParseMoment("2h", now)
	fmt.Println(at.Time.UTC().Format(time.TimeOnly), err)
	// Output: 10:00:00 <nil>
}
