// Package jstest has a JetStream that answers as a test says.
package jstest

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
)

// Server is a JetStream that answers as a test says.
type Server struct {
	jetstream.JetStream
	FindsStream   func(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	FindsConsumer func() (*jetstream.ConsumerInfo, error) // as it is found
	Refuses       map[string]error                        // by what is asked for
	There         []*jetstream.StreamInfo                 // what it lists
	Readers       []*jetstream.ConsumerInfo               // of every stream

	Asked   []string // in order
	Made    []jetstream.ConsumerConfig
	Streams []jetstream.StreamConfig // made or changed
}

func (s *Server) note(what string) error {
	s.Asked = append(s.Asked, what)
	return s.Refuses[what]
}

// Stream answers with FindsStream.
func (s *Server) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	_ = s.note("stream")
	info, err := s.FindsStream(ctx, name)
	if err != nil {
		return nil, err
	}
	return crowded{Stream{Found: info}, s}, nil
}

// crowded is a stream with its consumers.
type crowded struct {
	Stream
	by *Server
}

func (c crowded) ListConsumers(context.Context) jetstream.ConsumerInfoLister {
	return consumers{list[*jetstream.ConsumerInfo]{c.by.Readers, c.by.note("list consumers")}}
}

// ListStreams lists There.
func (s *Server) ListStreams(context.Context, ...jetstream.StreamListOpt) jetstream.StreamInfoLister {
	return infos{list[*jetstream.StreamInfo]{s.There, s.note("list streams")}}
}

// StreamNames lists the names of There.
func (s *Server) StreamNames(context.Context, ...jetstream.StreamListOpt) jetstream.StreamNameLister {
	names := words{list[string]{err: s.note("list names")}}
	for _, info := range s.There {
		names.all = append(names.all, info.Config.Name)
	}
	return names
}

// CreateStream notes the settings in Streams.
func (s *Server) CreateStream(_ context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if err := s.note("create stream"); err != nil {
		return nil, err
	}
	s.Streams = append(s.Streams, c)
	return Stream{Found: &jetstream.StreamInfo{Config: c}}, nil
}

// DeleteStream notes the request with the name.
func (s *Server) DeleteStream(_ context.Context, name string) error { return s.note("delete " + name) }

// UpdateStream notes the settings in Streams.
func (s *Server) UpdateStream(_ context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if err := s.note("update stream"); err != nil {
		return nil, err
	}
	s.Streams = append(s.Streams, c)
	return Stream{Found: &jetstream.StreamInfo{Config: c}}, nil
}

// Consumer answers with FindsConsumer.
func (s *Server) Consumer(context.Context, string, string) (jetstream.Consumer, error) {
	_ = s.note("find")
	info, err := s.FindsConsumer()
	if err != nil {
		return nil, err
	}
	return Consumer{Found: info}, nil
}

// CreateConsumer notes the settings in Made.
func (s *Server) CreateConsumer(_ context.Context, _ string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return s.make("create", c)
}

// UpdateConsumer notes the settings in Made.
func (s *Server) UpdateConsumer(_ context.Context, _ string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return s.make("update", c)
}

func (s *Server) make(what string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if err := s.note(what); err != nil {
		return nil, err
	}
	s.Made = append(s.Made, c)
	return Consumer{Found: &jetstream.ConsumerInfo{Name: what, Config: c}}, nil
}

// DeleteConsumer notes the request.
func (s *Server) DeleteConsumer(context.Context, string, string) error { return s.note("delete") }

// Consumer is a consumer as it is found.
type Consumer struct {
	jetstream.Consumer
	Found *jetstream.ConsumerInfo
}

// CachedInfo is Found.
func (c Consumer) CachedInfo() *jetstream.ConsumerInfo { return c.Found }

// At answers with a stream as it is.
func At(info *jetstream.StreamInfo) func(context.Context, string) (*jetstream.StreamInfo, error) {
	return func(context.Context, string) (*jetstream.StreamInfo, error) { return info, nil }
}

// list is what a server lists, to its end or until it fails.
type list[T any] struct {
	all []T
	err error
}

func (l list[T]) each() <-chan T {
	out := make(chan T, len(l.all))
	for _, item := range l.all {
		out <- item
	}
	close(out)
	return out
}

func (l list[T]) Err() error { return l.err }

// infos, words and consumers are lists in the form of the client library.
type (
	infos     struct{ list[*jetstream.StreamInfo] }
	words     struct{ list[string] }
	consumers struct{ list[*jetstream.ConsumerInfo] }
)

func (l infos) Info() <-chan *jetstream.StreamInfo { return l.each() }

func (l words) Name() <-chan string { return l.each() }

func (l consumers) Info() <-chan *jetstream.ConsumerInfo { return l.each() }

// Stream is a stream as it is found.
type Stream struct {
	jetstream.Stream
	Found *jetstream.StreamInfo
	Sum   string // of the message that was read last
	Err   error
}

// CachedInfo is Found.
func (f Stream) CachedInfo() *jetstream.StreamInfo { return f.Found }

// GetMsg is a message with the checksum Sum.
func (f Stream) GetMsg(context.Context, uint64, ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return &jetstream.RawStreamMsg{Header: nats.Header{events.HeaderSum: {f.Sum}}}, f.Err
}

// Of is a stream of some settings that takes up so many bytes.
func Of(c jetstream.StreamConfig, bytes uint64) *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: c, State: jetstream.StreamState{Bytes: bytes}}
}

// Having answers with the streams of some settings; there are no others.
func Having(all ...jetstream.StreamConfig) func(context.Context, string) (*jetstream.StreamInfo, error) {
	return func(_ context.Context, name string) (*jetstream.StreamInfo, error) {
		for _, c := range all {
			if c.Name == name {
				return &jetstream.StreamInfo{Config: c, State: jetstream.StreamState{LastSeq: 7}}, nil
			}
		}
		return nil, jetstream.ErrStreamNotFound
	}
}

// Connected is a connection to the server.
func (s *Server) Connected(o conn.Options) *conn.Conn {
	o.Timeout, o.Log = max(o.Timeout, time.Second), slog.New(slog.DiscardHandler)
	o.Intervals = conn.IntervalsOf(1, false, false)
	c := conn.New(o)
	c.JetStream = s
	return c
}
