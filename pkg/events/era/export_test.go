package era

// Decode is for fuzzing.
var Decode = decode
