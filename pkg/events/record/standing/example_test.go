package standing_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// A key is parked when its turns break again and again.
func ExampleReader_Parked() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureController(ctx, "job-controller"); err != nil {
		fmt.Println(err)
	}
	key := events.Key{Namespace: "shop", Name: "report"}
	m, err := events.EncodeJSON(events.Turn{Controller: "job-controller", Key: key, Lane: events.LanePark, Because: "panic: no template", Now: time.Now()}, events.Trace{})
	if err != nil {
		fmt.Println(err)
	}
	m.Subject = subject.Turn("job-controller", events.LanePark, key)
	if _, err := b.Put(ctx, m, "park"); err != nil {
		fmt.Println(err)
	}
	parked, err := standing.New(b).Parked(ctx)
	for _, p := range parked {
		fmt.Println(p.Controller, p.Key, p.Reason)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output: job-controller shop/report panic: no template
}
