package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// verified signs a record and verifies it, on the bus and in a file. It needs no cluster,
// and no other contender has a record.
func verified(ctx context.Context, f *field, work sizes) ([]metric, error) {
	if _, ok := f.who.(millrace); !ok {
		return nil, nil
	}
	if err := f.dismiss(); err != nil {
		return nil, err
	}
	sets := max(work.Pods/replayPods, 1)
	p, err := verifyRecord(ctx, rehearsal{sets: sets, turns: replayDeltas / 1000, changes: 1000})
	if err != nil {
		return nil, err
	}
	return []metric{
		{fmt.Sprintf("messages signed, of %d", p.messages), "1/s", float64(p.messages) / p.signed.Seconds()},
		{"messages verified, on the bus", "1/s", float64(p.messages) / p.onBus.Seconds()},
		{"messages verified, in a file", "1/s", float64(p.messages) / p.inFile.Seconds()},
		{"the record, unpacked, for 1,000 messages", "kB", float64(p.stored) / float64(p.messages)},
		{"the notary's pages, for 1,000 messages", "kB", float64(p.pages) / float64(p.messages)},
	}, nil
}

// proof is the time to sign and verify a record, and the sizes in bytes of the record and of the notary's
// pages.
type proof struct {
	messages              int
	signed, onBus, inFile time.Duration
	stored, pages         uint64
}

func verifyRecord(ctx context.Context, r rehearsal) (p proof, err error) {
	err = rehearsed(ctx, r, func(b *stream.Bus, dir string) error {
		private, _, err := notary.Generate("notary.bench")
		if err != nil {
			return err
		}
		signer, verifier, err := notary.Signer(private)
		if err != nil {
			return err
		}
		trust := notary.Trust{Known: note.VerifierList(verifier)}
		begun := time.Now()
		if err := notary.New(b, notary.Options{Signer: signer, Known: trust.Known}).Round(ctx); err != nil {
			return err
		}
		p.signed = time.Since(begun)
		if p.onBus, err = p.verify(ctx, b, trust); err != nil {
			return err
		}
		if err := p.weigh(ctx, b); err != nil {
			return err
		}
		file, err := exported(ctx, b, dir)
		if err != nil {
			return err
		}
		p.inFile, err = p.verify(ctx, file, trust)
		return errors.Join(err, file.Close())
	})
	return p, err
}

// verify fails unless every message is proven.
func (p *proof) verify(ctx context.Context, from bus.Archive, trust notary.Trust) (time.Duration, error) {
	begun := time.Now()
	report, err := notary.Verify(ctx, from, trust)
	took := time.Since(begun)
	if err != nil {
		return took, err
	}
	messages, proven := 0, 0
	for _, s := range report.Streams {
		messages, proven = messages+s.Messages, proven+s.Proven
	}
	if messages == 0 || proven != messages || len(report.Findings) > 0 {
		return took, fmt.Errorf("of %d messages %d are proven; found: %v", messages, proven, report.Findings)
	}
	p.messages = messages
	return took, nil
}

// weigh measures the stored sizes.
func (p *proof) weigh(ctx context.Context, b *stream.Bus) error {
	streams, err := notary.Streams(ctx, b)
	if err != nil {
		return err
	}
	for _, name := range append(streams, subject.NotaryStream) {
		state, err := b.StreamState(ctx, name)
		if err != nil {
			return err
		}
		if name == subject.NotaryStream {
			p.pages += state.Bytes
		} else {
			p.stored += state.Bytes
		}
	}
	return nil
}

// exported is the record in a file.
func exported(ctx context.Context, b *stream.Bus, dir string) (*archive.File, error) {
	name := filepath.Join(dir, "record.millrace")
	out, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	_, err = archive.Export(ctx, b, out, archive.Selection{})
	if err := errors.Join(err, out.Close()); err != nil {
		return nil, err
	}
	return archive.Open(name)
}
