package condition

// IsDoubtful lets tests compare it with Match.
var IsDoubtful = (*Set).doubtful
