package busflags

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/cmd/internal/doctor"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// Options are the flags for the bus: its address, retention and replicas.
type Options struct {
	// Connection is the address of the bus, with user and certificates.
	Connection connect.Connection
	monitoring []string
	auditGrade bool
	// Guest is true for a process that reads without consumers.
	Guest bool
	// Replicas are those of each stream.
	Replicas  int
	maxAge    time.Duration
	maxBytes  int64
	retention retention
}

// New has the defaults of the flags.
func New() Options {
	return Options{Replicas: 1, maxAge: 24 * time.Hour}
}

// Add adds the flags.
func (o *Options) Add(f *pflag.FlagSet) {
	o.Connection.Add(f)
	f.StringSliceVar(&o.monitoring, "nats-monitoring", o.monitoring,
		"monitoring `addresses` of all NATS servers, such as http://nats-0:8222; of millrace bus its health address with https, to which this service logs in with its user and password. Without them the sync interval of NATS is not known")
	f.BoolVar(&o.auditGrade, "require-audit-grade", o.auditGrade,
		"do not start on a bus that could lose acknowledged messages with its present settings; the log names these settings in any case")
	f.IntVar(&o.Replicas, "stream-replicas", o.Replicas, "replicas of each stream: 1, or 3 on a cluster of three servers")
	o.addRetention(f)
}

func (o *Options) addRetention(f *pflag.FlagSet) {
	f.DurationVar(&o.maxAge, "stream-max-age", o.maxAge, "how long deltas, turns and outcomes are kept, unless --retention sets another time; existing objects never expire")
	f.Int64Var(&o.maxBytes, "stream-max-bytes", o.maxBytes, "size limit of each stream in bytes, unless --retention sets another limit; 0 for none")
	f.Var(&o.retention, "retention",
		"age and size limits of a kind's deltas, or of a controller's turns and outcomes, such as pods=72h/2Gi,leases.coordination.k8s.io=1h,replicaset-controller=168h; the process that started last sets them")
}

// Wanted is what the flags expect of the bus. streams is the number of streams that the controllers use.
func (o *Options) Wanted(streams int) doctor.Wanted {
	w := doctor.Wanted{Address: o.Connection.Redacted(), User: o.Connection.User, Replicas: o.Replicas, AuditGrade: o.auditGrade, Streams: streams, Near: true}
	for address := range strings.SplitSeq(o.Connection.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil {
			continue
		}
		if u.User != nil && w.User == "" {
			w.User = u.User.Username()
		}
		w.Near = w.Near && loopback(u.Host)
	}
	return w
}

// Open connects to the bus: to server if it is not nil, otherwise to --nats-url.
//
// Errors: as StreamOptions; no address is given; the bus refuses the connection.
func (o *Options) Open(ctx context.Context, name string, server *embedded.Server) (*stream.Bus, error) {
	options, err := o.StreamOptions(name)
	if err != nil {
		return nil, err
	}
	options.Server, options.Log = server, program.Logger("bus")
	if server == nil && o.Connection.URL == "" {
		return nil, errors.New("no bus: set --nats-url to the address of a NATS server, such as nats://127.0.0.1:4222")
	}
	waiting := time.AfterFunc(remark, func() {
		klog.FromContext(ctx).Info("Waiting for NATS, which does not answer", "url", o.Connection.Redacted())
	})
	defer waiting.Stop()
	b, err := stream.Connect(ctx, options)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // stopped while waiting, which is no failure
	}
	return b, err
}

// StreamOptions translates the flags to the options of the connection.
//
// Errors: a file cannot be read, or the retention is below its minimum.
func (o *Options) StreamOptions(name string) (stream.Options, error) {
	options, err := o.Connection.Options(name)
	if err != nil {
		return options, err
	}
	options.Monitoring, options.Replicas = o.monitoring, o.Replicas
	options.Guest = options.Guest || o.Guest
	options.LogAge, options.LogBytes, options.Retention = o.maxAge, o.maxBytes, o.retention
	return options, o.CheckRetention()
}

// remark is how long NATS may take to answer before Open logs that it waits.
const remark = time.Second

// Audit refuses a bus whose settings are not audit grade, with --require-audit-grade.
// A shortcoming that passes by itself, such as a server that is down for the moment, does
// not stop the start, because that would add a second outage to the first.
//
// Errors: the bus cannot be asked; the shortcomings, with their cures.
func (o *Options) Audit(ctx context.Context, b *stream.Bus) error {
	if !o.auditGrade {
		return nil
	}
	found, err := b.Audit(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	for _, s := range found {
		if !s.Passing {
			wrong = append(wrong, s.String())
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("the bus is not audit grade: %s (or leave out --require-audit-grade)", strings.Join(wrong, ". Also, "))
}
