#pragma once

namespace telegrad {

// The page's beginning with its style, up to <body>; and the list of what its
// numbers mean. Nothing in them is loaded from elsewhere.
const char* PageHead();
const char* PageDefinitions();

}  // namespace telegrad
