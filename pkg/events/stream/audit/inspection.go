package audit

// Inspection describes a bus to one of its users: the facts to know before Millrace runs on it.
type Inspection struct {
	// Server is the address of the answering server, and Version its version.
	Server, Version string
	// Encrypted reports whether the connection is; Inside that the server runs in this process.
	Encrypted, Inside bool
	// JetStream reports whether the server announces it. Silent is the reason why JetStream's API
	// does not answer this user; nil: it does.
	JetStream bool
	Silent    error
	// StreamsExist reports whether Millrace's streams exist, Copies their number of replicas, now or
	// later, and Online how many replicas of a stream are online and current; 0: not known.
	StreamsExist   bool
	Copies, Online int
	// Servers is the number of servers of the bus, as far as this user can tell.
	Servers int
	// Payload is the size of the largest message.
	Payload int64
	// Told is the server's clock.
	Told ClockReading
	// Account is the limits of the account, valid if Unasked is nil.
	Account      Account
	AccountError error
	// Stores are those of the servers that report them.
	Stores []Store
	// Shortcomings are the reasons why an audit cannot rest on the record.
	Shortcomings []Shortcoming
}

// Account is the storage and streams that an account has and may have; a limit below 0 means
// none.
type Account struct {
	Stored, Reserved uint64
	MostStored       int64
	Streams          int
	MostStreams      int
}

// Store is the storage that a server uses and may use, in bytes.
type Store struct {
	Server     string
	Used, Most uint64
}
