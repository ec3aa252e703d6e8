package embedded

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/stream/space"
)

const (
	// For logOthersAfter checks in a row, a server of a cluster leaves it to a stream's leader to
	// bound the stream: the leader's store may be larger.
	logOthersAfter = 10
	// updateTimeout bounds the update of a stream.
	updateTimeout = 5 * time.Second
	// spaceUser changes the limits on a server with users.
	spaceUser = "millrace-room"
)

// storeSpace keeps a server's store from filling up.
type storeSpace struct {
	server   *server.Server
	options  Options
	password string
	cancel   context.CancelFunc
	done     chan struct{}
	bounds   atomic.Uint64 // how often a stream was bounded
	scarce   int           // for how many checks in a row the store has been scarce
}

// addUser adds the user that changes the limits, if the server has accounts and so admits no
// anonymous client.
func (r *storeSpace) addUser(settings *server.Options) {
	i := slices.IndexFunc(settings.Accounts, func(a *server.Account) bool { return a.Name == r.options.account() })
	if i < 0 {
		return
	}
	r.password = rand.Text()
	settings.Users = append(settings.Users, &server.User{Username: spaceUser, Password: r.password, Account: settings.Accounts[i], Permissions: &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{api + "STREAM.UPDATE.*"}},
		Subscribe: &server.SubjectPermission{Allow: []string{nats.InboxPrefix + ">"}},
	}})
}

// start checks the store until the server stops.
func (r *storeSpace) start(s *server.Server) {
	ctx, end := context.WithCancel(context.Background())
	r.server, r.cancel, r.done = s, end, make(chan struct{})
	go func() {
		defer close(r.done)
		for timer := time.NewTimer(0); ; {
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
				used, most, err := r.store()
				if err == nil {
					err = r.freeSpace(ctx, used, most)
				}
				if err != nil && ctx.Err() == nil {
					r.options.Log.Warn("cannot free space in the store", "error", err)
				}
				timer.Reset(space.UntilScarce(used, most))
			}
		}
	}()
}

func (r *storeSpace) stop() {
	if r.cancel != nil {
		r.cancel()
		<-r.done
	}
}

// freeSpace bounds streams if the store is scarce.
func (r *storeSpace) freeSpace(ctx context.Context, used, most uint64) error {
	if float64(used) < space.Scarce*float64(most) {
		r.scarce = 0
		return nil
	}
	r.scarce++
	account, err := r.server.JszAccount(&server.JSzOptions{Account: r.options.account(), Streams: true, Config: true})
	if err != nil {
		return fmt.Errorf("list the streams: %w", err)
	}
	sizes, configs := map[string]uint64{}, map[string]server.StreamConfig{}
	for _, d := range account.Streams {
		sizes[d.Name] = d.State.Bytes
		if d.Config != nil && (d.Cluster == nil || d.Cluster.Leader == r.server.Name() || r.scarce > logOthersAfter) {
			configs[d.Name] = *d.Config
		}
	}
	bounds := space.Bounds(sizes, used, most)
	if len(bounds) == 0 {
		return nil
	}
	conn, err := r.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if c, mine := configs[name]; mine {
			if err := r.bound(ctx, conn, c, bounds[name]); err != nil {
				return err
			}
			r.options.Log.Warn("the store is almost full: limited a stream, and dropped its oldest messages", "stream", name,
				"bytes", sizes[name], "keeps", bounds[name], "used", used, "store", most)
		}
	}
	return nil
}

// store is the used size of the store, and its limit.
func (r *storeSpace) store() (used, most uint64, err error) {
	info, err := r.server.Jsz(&server.JSzOptions{})
	if err != nil {
		return 0, 0, fmt.Errorf("look at the store: %w", err)
	}
	return info.Store, uint64(max(info.Config.MaxStore, 0)), nil
}

func (r *storeSpace) connect() (*nats.Conn, error) {
	options := []nats.Option{nats.InProcessServer(r.server), nats.NoReconnect(), nats.Name("room")}
	if r.password != "" {
		options = append(options, nats.UserInfo(spaceUser, r.password))
	}
	conn, err := nats.Connect("", options...)
	if err != nil {
		return nil, fmt.Errorf("connect to bound streams: %w", err)
	}
	return conn, nil
}

// bound sets a stream's limit in bytes.
func (r *storeSpace) bound(ctx context.Context, conn *nats.Conn, c server.StreamConfig, bytes uint64) error {
	c.MaxBytes, c.Metadata = int64(bytes), space.Note(c.Metadata, int64(bytes), time.Now())
	request, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the settings of stream %s: %w", c.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	answer, err := conn.RequestWithContext(ctx, api+"STREAM.UPDATE."+c.Name, request)
	if err != nil {
		return fmt.Errorf("bound stream %s: %w", c.Name, err)
	}
	var said server.JSApiStreamUpdateResponse
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return fmt.Errorf("bound stream %s: read the answer: %w", c.Name, err)
	}
	if said.Error != nil {
		return fmt.Errorf("bound stream %s: %w", c.Name, said.Error)
	}
	r.bounds.Add(1)
	return nil
}

// Describe makes a Server a [prometheus.Collector].
func (s *Server) Describe(ch chan<- *prometheus.Desc) { space.Describe(ch) }

// Collect makes a Server a [prometheus.Collector].
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	used, most, err := s.space.store()
	if err != nil {
		return
	}
	space.Collect(ch, used, most, s.space.bounds.Load())
}
